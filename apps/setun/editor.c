// Line editing by libedit, the saved history, and messages of several lines.
#define _POSIX_C_SOURCE 200809L
#include "editor.h"

#include "interrupt.h"
#include "output.h"

#include <histedit.h>

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

struct editor {
  EditLine *line; // NULL: standard input is not a terminal
  HistoryW *history;
  wchar_t prompt[128];
  text_buffer current, message; // the line, in UTF-8; several lines
  editor_options o;
  bool silent; // the terminal's echo was turned off
  bool moved;  // a signal arrived; the cursor moves to the end of the line
};

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";

// ---- characters ----

static bool append_character(text_buffer *b, uint32_t code) {
  char out[4];
  size_t n = 1;
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
  if (code < 0x80) {
    out[0] = (char)code;
  } else if (code < 0x800) {
    n = 2;
    out[0] = (char)(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    n = 3;
    out[0] = (char)(0xE0 | code >> 12);
  } else {
    n = 4;
    out[0] = (char)(0xF0 | code >> 18);
  }
  for (size_t i = 1; i < n; i++) out[i] = (char)(0x80 | (code >> (6 * (n - 1 - i)) & 0x3F));
  return append_text(b, out, n);
}

// The same from UTF-8; bytes that are not become U+FFFD. `out` has room for `n` characters and a 0.
static void widen(const char *text, size_t n, wchar_t *out) {
  for (size_t i = 0; i < n;) {
    unsigned char byte = (unsigned char)text[i++];
    int more = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC2 ? 1 : 0;
    uint32_t code = more == 3     ? byte & 7u
                    : more == 2   ? byte & 15u
                    : more == 1   ? byte & 31u
                    : byte < 0x80 ? byte
                                  : 0xFFFD;
    for (; more && i < n && (text[i] & 0xC0) == 0x80; more--) code = code << 6 | ((unsigned char)text[i++] & 0x3Fu);
    *out++ = (wchar_t)(more ? 0xFFFD : code);
  }
  *out = 0;
}

static editor *editor_of(EditLine *el) {
  editor *e = NULL;
  el_wget(el, EL_CLIENTDATA, &e);
  return e;
}

// An abandoned line stays on the screen, with what follows below it: first a key moves the cursor to its end. False
// when that was done.
static bool moves_to_end(EditLine *el, unsigned char *byte) {
  enum { CTRL_E = 5 };
  editor *e = editor_of(el);
  const LineInfoW *line = el_wline(el);
  e->moved = !e->moved && line->cursor != line->lastchar;
  *byte = CTRL_E;
  return e->moved;
}

// Reads one byte from the terminal: 1; 0 at the end; -1 after a signal. After a stop or a resize the line is redrawn
// and reading continues.
static int read_byte(EditLine *el, unsigned char *byte) {
  for (;;) {
    ssize_t n = wait_for_input(STDIN_FILENO) ? read(STDIN_FILENO, byte, 1) : -1;
    if (n >= 0) return (int)n;
    if (interrupt_pending()) {
      if (moves_to_end(el, byte)) return 1;
      errno = EINTR;
      return -1;
    }
    if (errno != EINTR) return -1;
    if (take_resized()) el_resize(el);
    if (take_continued()) {
      el_set(el, EL_PREP_TERM, 0);
      el_set(el, EL_PREP_TERM, 1);
      el_set(el, EL_REFRESH);
    }
  }
}

// Text is UTF-8 in any locale.
static int read_character(EditLine *el, wchar_t *out) {
  unsigned char byte = 0;
  int got = read_byte(el, &byte);
  if (got <= 0) return got;
  int more = byte >= 0xF0 && byte < 0xF5 ? 3 : byte >= 0xE0 && byte < 0xF0 ? 2 : byte >= 0xC2 && byte < 0xE0 ? 1 : 0;
  uint32_t code = more == 3 ? byte & 7u : more == 2 ? byte & 15u : more == 1 ? byte & 31u : byte < 0x80 ? byte : 0xFFFD;
  for (; more; more--) {
    got = read_byte(el, &byte);
    if (got <= 0) return got;
    code = (byte & 0xC0) == 0x80 ? code << 6 | (byte & 0x3Fu) : 0xFFFD;
    if (code == 0xFFFD) break;
  }
  *out = (wchar_t)code;
  return 1;
}

// The terminal marks pasted text: its newlines are text.
static unsigned char paste(EditLine *el, wint_t key) {
  static const wchar_t end[] = L"\033[201~";
  size_t n = 0, capacity = 1024, mark = sizeof end / sizeof *end - 1;
  wchar_t *text = malloc(capacity * sizeof *text);
  (void)key;
  while (text) {
    if (n + 1 >= capacity) {
      wchar_t *grown = realloc(text, (capacity *= 2) * sizeof *text);
      if (!grown) break;
      text = grown;
    }
    if (read_character(el, &text[n]) <= 0) break;
    if (text[n] == L'\r') text[n] = L'\n';
    n++;
    if (n >= mark && !wmemcmp(text + n - mark, end, mark)) {
      n -= mark;
      break;
    }
  }
  if (text) text[n] = 0;
  while (n && text[n - 1] == L'\n') text[--n] = 0;
  if (n) el_winsertstr(el, text);
  free(text);
  return CC_REFRESH;
}

// Lists them below the line, one per row if there are few.
static void list(const completion *c) {
  fputs("\n", stdout);
  for (size_t i = 0; i < c->count; i++) {
    for (const char *at = c->names[i]; *at; at++) fputc((unsigned char)*at < 32 || *at == 127 ? '?' : *at, stdout);
    fputs(i + 1 < c->count ? " " : "\n", stdout);
  }
  fflush(stdout);
}

// The Tab key: inserts the common prefix of all completions or, if that is empty, lists them.
static unsigned char complete(EditLine *el, wint_t key) {
  editor *e = editor_of(el);
  const LineInfoW *line = el_wline(el);
  (void)key;
  e->current.length = 0;
  for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
    if (!append_character(&e->current, (uint32_t)*c)) return CC_ERROR;
  }
  if (!e->o.complete || !e->current.length) return CC_ERROR;
  completion found = e->o.complete(e->current.data, e->current.length);
  wchar_t *text = found.common ? malloc((found.common + 1) * sizeof *text) : NULL;
  unsigned char result = CC_ERROR;
  if (text) {
    widen(found.names[0] + found.begun, found.common, text);
    result = el_winsertstr(el, text) ? CC_ERROR : CC_REFRESH;
  } else if (found.count > 1) {
    list(&found);
    result = CC_REDISPLAY;
  }
  free(text);
  completion_free(&found);
  return result;
}

static wchar_t *prompt_of(EditLine *el) {
  return editor_of(el)->prompt;
}

// ---- making ----

static bool bind_keys(EditLine *el) {
  static const wchar_t *const keys[][2] = {
      {L"\033[200~", L"setun-paste"},  {L"\033[3~", L"ed-delete-next-char"}, {L"\033[H", L"ed-move-to-beg"},
      {L"\033[F", L"ed-move-to-end"},  {L"\033[1~", L"ed-move-to-beg"},      {L"\033[4~", L"ed-move-to-end"},
      {L"\033[1;5C", L"em-next-word"}, {L"\033[1;5D", L"ed-prev-word"},      {L"\022", L"em-inc-search-prev"},
      {L"\t", L"setun-complete"},
  };
  if (el_wset(el, EL_ADDFN, L"setun-complete", L"Complete a command or a path", complete)) return false;
  if (el_wset(el, EL_ADDFN, L"setun-paste", L"Insert pasted text", paste)) return false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (el_wset(el, EL_BIND, keys[i][0], keys[i][1], NULL)) return false;
  }
  return true;
}

// ---- the history ----

static void load_history(editor *e) {
  HistEventW event;
  history_w(e->history, &event, H_SETSIZE, 1000);
  history_w(e->history, &event, H_SETUNIQUE, 1);
  if (!e->o.history || access(e->o.history, F_OK) != 0) return;
  if (history_w(e->history, &event, H_LOAD, e->o.history) < 0) note("%s: is not a history", e->o.history);
}

// Written next to the file first, so that it is always complete; only its owner may read it.
static void save_history(editor *e) {
  HistEventW event;
  char path[4096];
  int n = e->o.history ? snprintf(path, sizeof path, "%s.%ld.part", e->o.history, (long)getpid()) : -1;
  if (n < 0 || (size_t)n >= sizeof path || history_w(e->history, &event, H_FIRST) < 0) return;
  errno = 0;
  if (history_w(e->history, &event, H_SAVE, path) >= 0 && rename(path, e->o.history) == 0) return;
  note("%s: the history is not saved: %s", e->o.history, reason_of(errno));
  remove(path);
}

// Keys pressed during output are not shown; the terminal keeps them for the next line.
static void show_keys(editor *e, bool show) {
  struct termios modes;
  if (tcgetattr(STDIN_FILENO, &modes) != 0) return;
  if (show ? !e->silent : !(modes.c_lflag & ECHO)) return;
  e->silent = !show;
  modes.c_lflag = show ? modes.c_lflag | ECHO : modes.c_lflag & ~(tcflag_t)ECHO;
  tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

// ---- life ----

editor *editor_new(const editor_options *o) {
  editor *e = calloc(1, sizeof *e);
  if (!e) {
    failure("out of memory for reading text");
    return NULL;
  }
  e->o = *o;
  if (!o->terminal) return e;
  // The width of characters depends on the locale; without one, UTF-8 is still shown.
  setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
  e->line = el_init("setun", stdin, stdout, stderr);
  e->history = history_winit();
  if (!e->line || !e->history) {
    failure("out of memory for editing lines");
    editor_free(e);
    return NULL;
  }
  load_history(e);
  el_wset(e->line, EL_CLIENTDATA, e);
  el_wset(e->line, EL_PROMPT_ESC, prompt_of, L'\1');
  el_wset(e->line, EL_EDITOR, L"emacs");
  el_wset(e->line, EL_HIST, history_w, e->history);
  el_wset(e->line, EL_GETCFN, read_character);
  if (!bind_keys(e->line)) note("some keys of the line editor are not available");
  el_source(e->line, NULL); // ~/.editrc, as in every program that uses libedit
  return e;
}

void editor_free(editor *e) {
  if (!e) return;
  if (e->line) {
    show_keys(e, true);
    el_end(e->line);
  }
  if (e->history) {
    save_history(e);
    history_wend(e->history);
  }
  free(e->current.data);
  free(e->message.data);
  free(e);
}

// ---- reading ----

static input_event plain_line(editor *e, const char **text, size_t *length) {
  int c = 0;
  errno = 0;
  e->current.length = 0;
  if (!append_text(&e->current, "", 0)) return INPUT_FAILED;
  while ((c = getc_unlocked(stdin)) != EOF && c != '\n') {
    if (e->current.length >= e->o.most) return INPUT_TOO_LONG;
    if (!append_text(&e->current, &(char){(char)c}, 1)) return INPUT_FAILED;
  }
  if (c == EOF && !feof(stdin)) {
    if (interrupt_pending()) return INPUT_INTERRUPTED;
    failure("standard input: cannot read: %s", reason_of(errno));
    return INPUT_FAILED;
  }
  if (c == EOF && !e->current.length) return INPUT_END;
  if (e->current.length && e->current.data[e->current.length - 1] == '\r') e->current.data[--e->current.length] = 0;
  *text = e->current.data;
  *length = e->current.length;
  return INPUT_TEXT;
}

static input_event edited_line(editor *e, const char **text, size_t *length) {
  HistEventW event;
  int n = 0;
  fflush(stdout);
  fputs(paste_on, stdout);
  show_keys(e, true);               // libedit restores this state at the end
  el_set(e->line, EL_PREP_TERM, 1); // before the prompt is shown, so that no key arrives in the other mode
  const wchar_t *line = el_wgets(e->line, &n);
  fputs(paste_off, stdout);
  fflush(stdout);
  show_keys(e, false);
  if (!line || n <= 0) {
    if (interrupt_pending()) {
      el_reset(e->line);
      return INPUT_INTERRUPTED;
    }
    if (n == 0) return INPUT_END;
    failure("standard input: cannot read: %s", reason_of(errno));
    return INPUT_FAILED;
  }
  e->current.length = 0;
  if (n && line[n - 1] == L'\n') n--;
  if (!append_text(&e->current, "", 0)) return INPUT_FAILED;
  for (int i = 0; i < n; i++) {
    if (!append_character(&e->current, (uint32_t)line[i])) return INPUT_FAILED;
  }
  if (n) history_w(e->history, &event, H_ENTER, line);
  *text = e->current.data;
  *length = e->current.length;
  return INPUT_TEXT;
}

input_event editor_line(editor *e, const char *prompt, const char **text, size_t *length) {
  if (!e->line) return plain_line(e, text, length);
  // libedit treats text between two characters 1 as having no width.
  swprintf(e->prompt, sizeof e->prompt / sizeof *e->prompt, e->o.color ? L"\1\033[1;32m\1%s\1\033[0m\1" : L"%s",
           prompt);
  return edited_line(e, text, length);
}

static const char quotes[] = "\"\"\"";

static bool ends_with_quotes(const char *text, size_t length) {
  return length >= 3 && !memcmp(text + length - 3, quotes, 3);
}

// Reads lines up to one that ends with """; the first one followed the opening quotes.
static input_event quoted_message(editor *e, const char *text, size_t length) {
  input_event event = INPUT_TEXT;
  while (event == INPUT_TEXT) {
    bool last = ends_with_quotes(text, length);
    if (last) length -= 3;
    bool room = e->message.length <= e->o.most; // a message that is too long is only read to its end
    if (room && e->message.length && !(last && !length) && !append_text(&e->message, "\n", 1)) return INPUT_FAILED;
    if (room && !append_text(&e->message, text, length)) return INPUT_FAILED;
    if (last) break;
    event = editor_line(e, "... ", &text, &length);
  }
  return event;
}

input_event editor_message(editor *e, const char **text, size_t *length) {
  input_event event = editor_line(e, "> ", text, length);
  if (event != INPUT_TEXT || !e->line) return event;
  e->message.length = 0;
  if (*length >= 3 && !memcmp(*text, quotes, 3)) {
    event = quoted_message(e, *text + 3, *length - 3);
  } else {
    while (event == INPUT_TEXT && *length && (*text)[*length - 1] == '\\') {
      if (!append_text(&e->message, *text, *length - 1) || !append_text(&e->message, "\n", 1)) return INPUT_FAILED;
      event = editor_line(e, "... ", text, length);
    }
    if (event == INPUT_TEXT && !append_text(&e->message, *text, *length)) return INPUT_FAILED;
  }
  *text = e->message.data;
  *length = e->message.length;
  return event == INPUT_TEXT && *length > e->o.most ? INPUT_TOO_LONG : event;
}
