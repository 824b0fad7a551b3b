// Line editing by libedit, and messages of several lines.
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
#include <unistd.h>
#include <wchar.h>

struct editor {
  EditLine *line; // NULL: standard input is not a terminal
  HistoryW *history;
  wchar_t prompt[128];
  text_buffer current, message; // the line, in UTF-8; several of them
  size_t most;                  // bytes of a message
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

// One byte from the terminal: 1, 0 at the end, -1 when a signal asks for attention. A stop in between, or a window of
// another size, is mended and not noticed.
static int read_byte(EditLine *el, unsigned char *byte) {
  for (;;) {
    ssize_t n = wait_for_input(STDIN_FILENO) ? read(STDIN_FILENO, byte, 1) : -1;
    if (n >= 0) return (int)n;
    if (interrupt_pending()) {
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

// Text is UTF-8 whatever the locale says.
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

// The terminal marks what was pasted: its newlines are text.
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

static wchar_t *prompt_of(EditLine *el) {
  editor *e = NULL;
  el_wget(el, EL_CLIENTDATA, &e);
  return e->prompt;
}

// ---- making ----

static bool bind_keys(EditLine *el) {
  static const wchar_t *const keys[][2] = {
      {L"\033[200~", L"setun-paste"},  {L"\033[3~", L"ed-delete-next-char"}, {L"\033[H", L"ed-move-to-beg"},
      {L"\033[F", L"ed-move-to-end"},  {L"\033[1~", L"ed-move-to-beg"},      {L"\033[4~", L"ed-move-to-end"},
      {L"\033[1;5C", L"em-next-word"}, {L"\033[1;5D", L"ed-prev-word"},      {L"\022", L"em-inc-search-prev"},
  };
  if (el_wset(el, EL_ADDFN, L"setun-paste", L"Insert what the terminal says was pasted", paste)) return false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (el_wset(el, EL_BIND, keys[i][0], keys[i][1], NULL)) return false;
  }
  return true;
}

editor *editor_new(bool terminal, size_t most) {
  HistEventW event;
  editor *e = calloc(1, sizeof *e);
  if (!e) {
    failure("out of memory for reading text");
    return NULL;
  }
  e->most = most;
  if (!terminal) return e;
  // How wide characters are is the locale's; a program started without one still shows UTF-8.
  setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
  e->line = el_init("setun", stdin, stdout, stderr);
  e->history = history_winit();
  if (!e->line || !e->history) {
    failure("out of memory for editing lines");
    editor_free(e);
    return NULL;
  }
  history_w(e->history, &event, H_SETSIZE, 1000);
  history_w(e->history, &event, H_SETUNIQUE, 1);
  el_wset(e->line, EL_CLIENTDATA, e);
  el_wset(e->line, EL_PROMPT, prompt_of);
  el_wset(e->line, EL_EDITOR, L"emacs");
  el_wset(e->line, EL_HIST, history_w, e->history);
  el_wset(e->line, EL_GETCFN, read_character);
  if (!bind_keys(e->line)) note("some keys of the line editor are not available");
  el_source(e->line, NULL); // ~/.editrc, as in every program that uses libedit
  return e;
}

void editor_free(editor *e) {
  if (!e) return;
  if (e->line) el_end(e->line);
  if (e->history) history_wend(e->history);
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
    if (e->current.length >= e->most) return INPUT_TOO_LONG;
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
  el_set(e->line, EL_PREP_TERM, 1); // before the prompt shows, so that no key comes in the other mode
  const wchar_t *line = el_wgets(e->line, &n);
  fputs(paste_off, stdout);
  fflush(stdout);
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
  size_t n = 0;
  for (; prompt[n] && n + 1 < sizeof e->prompt / sizeof *e->prompt; n++) e->prompt[n] = (wchar_t)prompt[n];
  e->prompt[n] = 0;
  return edited_line(e, text, length);
}

static const char quotes[] = "\"\"\"";

static bool ends_with_quotes(const char *text, size_t length) {
  return length >= 3 && !memcmp(text + length - 3, quotes, 3);
}

// Lines up to one that ends with """; the first one came with its beginning.
static input_event quoted_message(editor *e, const char *text, size_t length) {
  input_event event = INPUT_TEXT;
  while (event == INPUT_TEXT) {
    bool last = ends_with_quotes(text, length);
    if (last) length -= 3;
    bool room = e->message.length <= e->most; // what is too long already is only read to its end
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
  return event == INPUT_TEXT && *length > e->most ? INPUT_TOO_LONG : event;
}
