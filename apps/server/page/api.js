// Requests to the server, by addresses relative to the page's, so that they go through the same proxy.
import {memory} from './dom.js';
import {keyFor} from './store.js';

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status; // 0: the server could not be reached, or the connection was cut
  }
}

// ---- the key ----

export function currentKey() {
  return memory.get(keyFor('key'), 'sessionStorage') ?? memory.get(keyFor('key'));
}

export function keepKey(key, forLong) {
  memory.set(keyFor('key'), key, 'sessionStorage');
  memory.set(keyFor('key'), forLong ? key : null);
}

// ---- requests ----

async function request(path, options = {}) {
  const key = currentKey();
  const headers = {...options.headers};
  if (key) headers.Authorization = `Bearer ${key}`;
  let reply;
  try {
    reply = await fetch(path, {...options, headers, credentials: 'same-origin', cache: 'no-store'});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError('The server cannot be reached.', 0);
  }
  if (reply.ok) return reply;
  let message = `The server answered with status ${reply.status}.`;
  try {
    message = (await reply.json()).error.message ?? message;
  } catch {
    // somebody between us and the server answered
  }
  throw new ServerError(message, reply.status);
}

export async function getJson(path) {
  return (await request(path)).json();
}

export async function getText(path) {
  return (await request(path)).text();
}

// Data of server-sent events, as they come.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '', data = [];
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line && data.length) {
        yield data.join('\n');
        data = [];
      } else if (line.startsWith('data:')) {
        data.push(line.slice(line[5] === ' ' ? 6 : 5));
      }
    }
  }
}

// Asks for an answer; calls onChunk with each part of the stream. Throws a ServerError, or an AbortError.
export async function chat(body, signal, onChunk) {
  const reply = await request('v1/chat/completions', {
    method: 'POST', headers: {'Content-Type': 'application/json'}, signal,
    body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}, timings_per_token: true}),
  });
  try {
    for await (const data of events(reply.body)) {
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServerError(chunk.error.message ?? 'The server failed.', chunk.error.code ?? 500);
      onChunk(chunk);
    }
  } catch (error) {
    if (error.name === 'AbortError' || error instanceof ServerError) throw error;
    throw new ServerError('The connection to the server was cut.', 0);
  }
  throw new ServerError('The connection to the server was cut before the answer\u2019s end.', 0);
}
