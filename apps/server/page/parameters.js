// The parameters of answers: one row each. The form, the request and the check of imported files come from it.
// A value that is not given is the server's default, which /props tells by the same name.

export const PARAMETERS = [
  {name: 'temperature', label: 'Temperature', low: 0, high: 1000, help: 'higher is more varied; 0: always the likeliest token'},
  {name: 'top_p', label: 'Top-p', low: 0, high: 1, help: 'keep the likeliest tokens up to this total probability'},
  {name: 'top_k', label: 'Top-k', low: 0, high: 2147483646, whole: true, help: 'keep only this many of the likeliest; 0: all'},
  {name: 'min_p', label: 'Min-p', low: 0, high: 1, help: 'drop tokens below this share of the likeliest one'},
  {name: 'max_tokens', label: 'Max tokens', low: -1, high: 2147483646, whole: true, help: 'length of an answer; -1: as many as fit'},
  {name: 'seed', label: 'Seed', low: -1, high: Number.MAX_SAFE_INTEGER, whole: true, fallback: 'random', help: 'the same seed gives the same answer'},
  {name: 'repeat_penalty', label: 'Repeat penalty', low: 0.001, high: 1000, help: 'makes recent tokens less likely; 1: off'},
  {name: 'presence_penalty', label: 'Presence penalty', low: -1000, high: 1000, help: 'once for each recent token; 0: off'},
  {name: 'frequency_penalty', label: 'Frequency penalty', low: -1000, high: 1000, help: 'for each time it came; 0: off'},
  {name: 'stop', label: 'Stop texts', lines: true, help: 'end the answer; one a line, \\n is a line break'},
  {name: 'thinking', label: 'Reasoning', choices: [['', 'as the model does'], ['on', 'on'], ['off', 'off']], help: 'where the chat template has enable_thinking'},
];

// What is wrong with a value: what would be right; null: nothing.
export function parameterProblem(parameter, value) {
  const {low, high, whole, lines, choices} = parameter;
  if (choices) return choices.some(([name]) => name === value) ? null : choices.map(([name]) => `"${name}"`).join(', ');
  if (lines) {
    const fine = Array.isArray(value) && value.length <= 64 &&
      value.every((text) => typeof text === 'string' && text.length > 0 && text.length <= 1000);
    return fine ? null : 'at most 64 texts of 1 to 1000 characters';
  }
  const fine = typeof value === 'number' && value >= low && value <= high && (!whole || Number.isInteger(value));
  return fine ? null : `${whole ? 'a whole number' : 'a number'} from ${low} to ${high}`;
}

// The members of a request.
export function requestOf(params) {
  const {thinking, ...rest} = params;
  return thinking ? {...rest, chat_template_kwargs: {enable_thinking: thinking === 'on'}} : rest;
}
