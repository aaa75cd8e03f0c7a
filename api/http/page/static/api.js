// Talks to the server that the page came from: JSON, event streams, files. Knows no elements.

const KEY = "hemiola-key";
let askForKey = () => Promise.reject(new Error("The server asks for an API key."));

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** `ask` shows the user a question for the key, and gives it. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** A response that is good; asks for the key when the server does. */
export async function call(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const headers = {};
    const key = sessionStorage.getItem(KEY);
    if (key) headers.authorization = `Bearer ${key}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    let response;
    try {
      // What is taken back is taken back even if the page is left.
      response = await fetch(path, { method, headers, signal, keepalive: method === "DELETE", body: body === undefined ? undefined : JSON.stringify(body) });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The server cannot be reached.", 0);
    }
    if (response.ok) return response;
    if (response.status === 401) {
      sessionStorage.setItem(KEY, await askForKey());
      continue;
    }
    throw new ApiError(await messageOf(response), response.status);
  }
}

async function messageOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered with ${response.status}.`;
  }
}

export async function json(path, options) {
  return (await call(path, options)).json();
}

/** Posts, and gives what streams back, one `{event, data}` or `{comment}` at a time. */
export async function* stream(path, body, signal) {
  const response = await call(path, { method: "POST", body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value.replaceAll("\r\n", "\n")).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const message = parse(block);
      if (message.data === "[DONE]") return;
      if (message.data !== undefined) {
        message.data = JSON.parse(message.data);
        if (message.data.error) throw new ApiError(message.data.error.message, 200);
      }
      yield message;
    }
  }
}

function parse(block) {
  const message = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (colon === 0) message.comment = value;
    else if (line.startsWith("event:")) message.event = value;
    else if (line.startsWith("data:")) message.data = message.data === undefined ? value : `${message.data}\n${value}`;
  }
  return message;
}

/** The served models by what they make: `{chat: [id], image: [id], video: [id]}`. */
export async function models() {
  const { data } = await json("/v1/models");
  const makes = (kind) => data.filter((model) => (model.modalities?.output ?? ["text"]).includes(kind)).map((model) => model.id);
  return { chat: makes("text"), image: makes("image"), video: makes("video") };
}

export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}
