// Markdown to DOM nodes. The text is untrusted: it becomes text nodes and a few kinds of elements, never HTML; links lead
// to http, https and mailto alone; images are linked, not loaded. The work grows with the length alone.
import {copyButton, el} from './dom.js';

const DEPTH_MOST = 12; // of quotes and lists in each other; what is deeper is a plain paragraph
const FENCE = /^( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: {1,4}(?! )| (?= )|$)/;

const indentOf = (line) => line.length - line.trimStart().length;
const isBlank = (line) => !line.trim();
const beginsBlock = (line) =>
  FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || RULE.test(line) || ITEM.test(line);

// ---- blocks: each is {source, build}: what it depends on, and what makes its element ----

function fence(lines, i, match) {
  const [, indent, marks, info] = match;
  const end = new RegExp(`^ {0,3}\\${marks[0]}{${marks.length},}[ \\t]*$`);
  const code = [];
  for (i++; i < lines.length && !end.test(lines[i]); i++)
    code.push(lines[i].slice(Math.min(indent.length, indentOf(lines[i]))));
  return [Math.min(i + 1, lines.length), () => codeElement(code.join('\n'), info.trim().split(/\s+/)[0])];
}

function codeElement(code, language) {
  return el('div', {class: 'code'},
    el('div', {class: 'code-bar'}, el('span', {}, language || 'text'), copyButton('code', () => code)),
    el('pre', {tabindex: '0', role: 'region', 'aria-label': `Code: ${language || 'text'}`}, el('code', {}, code)));
}

function quote(lines, i, depth) {
  const inner = [];
  for (; i < lines.length && !isBlank(lines[i]); i++) {
    if (QUOTE.test(lines[i])) inner.push(lines[i].replace(QUOTE, ''));
    else if (beginsBlock(lines[i])) break;
    else inner.push(lines[i]);
  }
  return [i, () => el('blockquote', {}, elements(inner, depth + 1))];
}

// The next line that is not blank.
function skipBlank(lines, i) {
  while (i < lines.length && isBlank(lines[i])) i++;
  return i;
}

// The lines of one item after its first one.
function restOfItem(lines, i, base, width, item) {
  while (i < lines.length) {
    const indent = indentOf(lines[i]);
    if (isBlank(lines[i])) {
      const next = skipBlank(lines, i);
      if (next === lines.length || indentOf(lines[next]) < base + 2) break;
      for (; i < next; i++) item.push('');
    } else if (indent >= base + 2) {
      item.push(lines[i++].slice(Math.min(indent, width)));
    } else if (beginsBlock(lines[i])) {
      break;
    } else {
      item.push(lines[i++].trim());
    }
  }
  return i;
}

function list(lines, i, depth) {
  const first = ITEM.exec(lines[i]);
  const base = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let loose = false;
  while (i < lines.length) {
    const match = ITEM.exec(lines[i]);
    if (!match || match[1].length > base + 1 || /\d/.test(match[2]) !== ordered || RULE.test(lines[i])) break;
    const item = [lines[i].slice(match[0].length)];
    i = restOfItem(lines, i + 1, base, match[0].length, item);
    items.push(item);
    const next = skipBlank(lines, i);
    if (next > i && next < lines.length && ITEM.test(lines[next])) {
      loose = true;
      i = next;
    }
  }
  const start = ordered && parseInt(first[2], 10) !== 1 ? parseInt(first[2], 10) : null;
  return [i, () => el(ordered ? 'ol' : 'ul', {start, class: loose && 'loose'}, items.map((x) => itemElement(x, depth)))];
}

function itemElement(lines, depth) {
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  if (task) lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
  const mark = task && el('span', {class: 'task', role: 'img', 'aria-label': task[1] === ' ' ? 'open' : 'done'},
    task[1] === ' ' ? '\u2610' : '\u2611');
  const inner = elements(lines, depth + 1);
  // A short item's text is not a paragraph of its own.
  if (inner[0]?.tagName === 'P') inner[0] = [...inner[0].childNodes];
  return el('li', {class: task && 'task-item'}, mark, inner.flat());
}

function cells(line) {
  const found = [''];
  line = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  for (let i = 0; i < line.length; i++) {
    if (line[i] === '\\' && line[i + 1] === '|') found[found.length - 1] += line[++i];
    else if (line[i] === '|') found.push('');
    else found[found.length - 1] += line[i];
  }
  return found.map((cell) => cell.trim());
}

// The columns' alignments, if the line is one between a table's head and its body.
function alignments(line) {
  if (!line || !/^[|:\- \t]+$/.test(line) || !line.includes('-') || !line.includes('|')) return null;
  const columns = cells(line);
  if (!columns.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return columns.map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : null));
}

function table(lines, i, columns) {
  const head = cells(lines[i]);
  const rows = [];
  for (i += 2; i < lines.length && !isBlank(lines[i]) && lines[i].includes('|'); i++) rows.push(cells(lines[i]));
  const row = (tag, texts) => el('tr', {},
    columns.map((align, k) => el(tag, {class: align, scope: tag === 'th' && 'col'}, inline(texts[k] ?? ''))));
  return [i, () => el('div', {class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table'},
    el('table', {}, el('thead', {}, row('th', head)), el('tbody', {}, rows.map((texts) => row('td', texts)))))];
}

function paragraph(lines, i) {
  const begin = i++;
  while (i < lines.length && !isBlank(lines[i]) && !beginsBlock(lines[i]) &&
         !(lines[i].includes('|') && alignments(lines[i + 1]))) i++;
  const text = lines.slice(begin, i).map((line) => line.trim()).join('\n');
  return [i, () => el('p', {}, inline(text))];
}

// A heading's text without the # that may close it.
function withoutMarks(text) {
  text = text.trimEnd();
  let end = text.length;
  while (text[end - 1] === '#') end--;
  return end === text.length || (end && text[end - 1] !== ' ') ? text : text.slice(0, end).trimEnd();
}

function nextBlock(lines, i, depth) {
  const line = lines[i];
  let match, columns;
  if ((match = FENCE.exec(line))) return fence(lines, i, match);
  if (depth >= DEPTH_MOST) return paragraph(lines, i);
  if ((match = HEADING.exec(line))) {
    const text = withoutMarks(match[2] ?? ''), marks = match[1].length;
    return [i + 1, (above) => el(`h${levelOf(marks, above)}`, {class: `level-${marks}`}, inline(text)), marks];
  }
  if (RULE.test(line)) return [i + 1, () => el('hr')];
  if (QUOTE.test(line)) return quote(lines, i, depth);
  if (ITEM.test(line)) return list(lines, i, depth);
  if (line.includes('|') && (columns = alignments(lines[i + 1])) && cells(line).length === columns.length)
    return table(lines, i, columns);
  return paragraph(lines, i);
}

// Levels have no gaps, for those who go from heading to heading: `above` is the level of the heading before; that of a
// message is 2.
const levelOf = (marks, above) => Math.min(6, marks + 2, above + 1);

function blocks(lines, depth) {
  const found = [];
  let above = 2;
  for (let i = skipBlank(lines, 0); i < lines.length; i = skipBlank(lines, i)) {
    const [end, build, marks] = nextBlock(lines, i, depth), before = above;
    if (marks) above = levelOf(marks, above);
    found.push({source: `${before}${lines.slice(i, end).join('\n')}`, build: () => build(before)});
    i = end;
  }
  return found;
}

const elements = (lines, depth) => blocks(lines, depth).map((block) => block.build());

// ---- inside of a block ----

const PUNCTUATION = /[\p{P}\p{S}]/u;
const DESTINATION = /\(\s*(<[^<>\n]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+(?:"[^"\n]*"|'[^'\n]*'))?\s*\)/y;
const ANGLE = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const BARE = /https?:\/\/[^\s<>"`]{1,2000}/y;

export function safeAddress(text) {
  try {
    const address = new URL(text);
    return ['http:', 'https:', 'mailto:'].includes(address.protocol) ? address.href : null;
  } catch {
    return null; // a relative one would lead to the server's own paths
  }
}

function link(address, children) {
  return el('a', {href: address, target: '_blank', rel: 'noopener noreferrer nofollow'}, children);
}

// A bare address without the punctuation after it.
function withoutEnd(address) {
  let end = address.length;
  const loose = (c) => ".,;:!?'*_~]".includes(c) || (c === ')' && !address.includes('('));
  while (end && loose(address[end - 1])) end--;
  return address.slice(0, end);
}

// Where each [ has its ].
function brackets(text) {
  const open = [], pairs = new Map();
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '\\') i++;
    else if (text[i] === '[') open.push(i);
    else if (text[i] === ']' && open.length) pairs.set(open.pop(), i);
  }
  return pairs;
}

// Where the runs of backticks of each length are.
function backticks(text) {
  const runs = new Map();
  for (const run of text.matchAll(/`+/g)) {
    if (!runs.has(run[0].length)) runs.set(run[0].length, []);
    runs.get(run[0].length).push(run.index);
  }
  for (const starts of runs.values()) starts.reverse(); // the next one is the last
  return runs;
}

function at(pattern, text, i) {
  pattern.lastIndex = i;
  return pattern.exec(text);
}

// A run of * or _ or ~: whether emphasis may begin, and end, with it.
function delimiter(text, i, length) {
  const mark = text[i];
  const before = text[i - 1] ?? ' ', after = text[i + length] ?? ' ';
  const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
  const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
  if (mark === '_')
    return {mark, length, opens: left && (!right || PUNCTUATION.test(before)), closes: right && (!left || PUNCTUATION.test(after))};
  return {mark, length, opens: left, closes: right};
}

// Joins what is between delimiters that belong together; the others are text.
function emphasize(pieces) {
  const done = [], open = {'*': [], _: [], '~': []};
  const asNode = (piece) => (piece instanceof Node ? piece : document.createTextNode(piece.mark.repeat(piece.length)));
  for (const piece of pieces) {
    if (piece instanceof Node) {
      done.push(piece);
      continue;
    }
    while (piece.closes && piece.length && open[piece.mark].length) {
      const where = open[piece.mark].at(-1), opener = done[where];
      const use = Math.min(2, piece.length, opener.length);
      const inner = done.splice(where + 1).map(asNode);
      for (const stack of Object.values(open)) while (stack.length && stack.at(-1) > where) stack.pop();
      opener.length -= use;
      piece.length -= use;
      if (!opener.length) {
        done.pop();
        open[piece.mark].pop();
      }
      done.push(el(piece.mark === '~' ? 'del' : use === 2 ? 'strong' : 'em', {}, inner));
    }
    if (!piece.length) continue;
    if (piece.opens) open[piece.mark].push(done.length);
    done.push(piece);
  }
  return done.map(asNode);
}

// Nodes of a text. `linked`: within a link, where there are no others.
function inline(text, linked = false) {
  const pieces = [], pairs = brackets(text), runs = backticks(text);
  let plain = '', i = 0;
  const add = (piece, end) => {
    if (plain) pieces.push(document.createTextNode(plain));
    plain = '';
    pieces.push(piece);
    i = end;
  };
  const addLink = (begin, image) => {
    const close = pairs.get(begin);
    const match = close !== undefined && !linked && at(DESTINATION, text, close + 1);
    const address = match && safeAddress(match[1].replace(/^<|>$/g, ''));
    if (!address) return false;
    const label = text.slice(begin + 1, close);
    const children = image ? [`Image: ${label || address}`] : inline(label, true);
    add(link(address, children.length ? children : address), close + 1 + match[0].length);
    return true;
  };
  while (i < text.length) {
    const c = text[i];
    let match;
    if (c === '\\' && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? '')) {
      plain += text[i + 1];
      i += 2;
    } else if (c === '\n') {
      add(el('br'), i + 1);
    } else if (c === '`') {
      const length = /^`+/.exec(text.slice(i, i + 64))[0].length, starts = runs.get(length) ?? [];
      while (starts.length && starts.at(-1) <= i) starts.pop();
      const end = starts.at(-1);
      if (end === undefined) {
        plain += text.slice(i, i + length);
        i += length;
      } else {
        const code = text.slice(i + length, end).replace(/\n/g, ' ');
        add(el('code', {}, /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code), end + length);
      }
    } else if (c === '*' || c === '_' || c === '~') {
      let length = 1;
      while (text[i + length] === c) length++;
      if (c === '~' && length !== 2) {
        plain += text.slice(i, i + length);
        i += length;
      } else {
        add(delimiter(text, i, length), i + length);
      }
    } else if ((c === '[' && addLink(i, false)) || (c === '!' && text[i + 1] === '[' && addLink(i + 1, true))) {
      // it was added
    } else if (c === '<' && !linked && (match = at(ANGLE, text, i)) && safeAddress(match[1])) {
      add(link(safeAddress(match[1]), match[1].replace(/^mailto:/, '')), i + match[0].length);
    } else if (c === 'h' && !linked && !/\w/.test(text[i - 1] ?? '') && (match = at(BARE, text, i))) {
      const address = withoutEnd(match[0]);
      if (safeAddress(address)) {
        add(link(safeAddress(address), address), i + address.length);
      } else {
        plain += match[0];
        i += match[0].length;
      }
    } else {
      plain += c;
      i++;
    }
  }
  if (plain) pieces.push(document.createTextNode(plain));
  return emphasize(pieces);
}

// ---- a text that grows ----

const rendered = new WeakMap(); // the sources of an element's blocks

// Makes the element show the text. Blocks that are the same as before stay, with what is selected in them.
export function render(into, text) {
  const before = rendered.get(into) ?? [];
  const now = blocks(text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n'), 0);
  let same = 0;
  while (same < before.length && same < now.length && before[same] === now[same].source) same++;
  while (into.children.length > same) into.lastElementChild.remove();
  for (const block of now.slice(same)) into.append(block.build());
  rendered.set(into, now.map((block) => block.source));
}
