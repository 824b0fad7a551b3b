// Answers that are being written: one at most in each conversation, also while another one is shown.
import {ServerError, chat} from './api.js';
import {requestOf} from './parameters.js';
import {addNode, messagesUpTo} from './tree.js';

const running = new Map(); // id of a conversation: {node, controller}

export const runningNode = (conversation) => running.get(conversation?.id)?.node ?? null;
export const isRunning = (conversation) => running.has(conversation?.id);

export function stop(conversation) {
  running.get(conversation?.id)?.controller.abort();
}

function take(node, chunk) {
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  if (typeof delta.content === 'string') node.content += delta.content;
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (typeof reasoning === 'string') node.reasoning += reasoning;
  if (choice?.finish_reason) node.state = choice.finish_reason === 'length' ? 'length' : 'done';
  const {timings, usage, model} = chunk;
  node.stats ??= {};
  if (typeof model === 'string') node.stats.model = model;
  if (timings) {
    node.stats.cached = timings.cache_n;
    node.stats.prompt = timings.prompt_n + timings.cache_n;
    node.stats.tokens = timings.predicted_n;
    if (Number.isFinite(timings.predicted_per_second)) node.stats.perSecond = timings.predicted_per_second;
  }
  if (usage) {
    node.stats.prompt = usage.prompt_tokens;
    node.stats.tokens = usage.completion_tokens;
  }
  node.changed = Date.now();
}

// Has the server write `node`, an assistant's message, or go on with what it has. `changed` is called with it after each
// part, `ended` at the end, whatever that is. Gives a promise of the end.
export async function write(conversation, node, {model, changed, ended}) {
  const controller = new AbortController();
  const goesOn = node.content !== '';
  running.set(conversation.id, {node, controller});
  node.state = 'writing';
  node.error = '';
  changed(node);
  let problem = null;
  try {
    const body = {
      ...requestOf(conversation.params),
      messages: messagesUpTo(conversation, goesOn ? node.id : node.parent),
      ...(model ? {model} : {}), ...(goesOn ? {continue_final_message: true} : {}),
    };
    await chat(body, controller.signal, (chunk) => {
      take(node, chunk);
      changed(node);
    });
    if (node.state === 'writing') node.state = 'done';
  } catch (error) {
    if (controller.signal.aborted) {
      node.state = 'stopped';
    } else {
      node.state = 'failed';
      node.error = error.message;
      problem = error instanceof ServerError ? error : new ServerError(error.message, 0);
    }
  }
  node.changed = Date.now();
  running.delete(conversation.id);
  ended(node, problem);
}

// A new answer to the message `parent`, in addition to existing ones.
export function answer(conversation, parent, hooks) {
  const node = addNode(conversation, parent, 'assistant', '', 'writing');
  return write(conversation, node, hooks);
}
