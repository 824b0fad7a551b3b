// Spellings of options in other programs, mainly llama.cpp; and suggestions for mistyped words.
#ifndef SETUN_APP_SPELLINGS_H
#define SETUN_APP_SPELLINGS_H

#include "options.h"

typedef enum spelling_kind {
  SPELLING_ALIAS,  // another name of the option `ours` (its long name or letter), if the command has that option
  SPELLING_MODEL,  // the argument MODEL
  SPELLING_ALWAYS, // a flag for what is always done
  SPELLING_MEANT,  // not accepted: the option `ours` is meant, if the command has it
  SPELLING_INSTEAD // not accepted, except for the words of `accepted`; `ours` names the alternative
} spelling_kind;

typedef struct spelling {
  const char *theirs; // "--ctx-size", "-ngl"
  spelling_kind kind;
  const char *ours;
  const char *accepted; // "0|none": values for what is always done; NULL: none, and the option takes no value
} spelling;

// The next row of a spelling with its dashes, of `length` bytes, from *index on, which then is after it; NULL: there
// is none.
const spelling *next_spelling(const char *text, size_t length, size_t *index);
// The other names of an option, from *index on; NULL past the last. For help.
const char *next_alias(const option *o, size_t *index);

// The command's option nearest to a word with its dashes, such as "--temp" for "--tmep", in `name`; false: none is
// near.
bool nearest_option(const command *self, const char *text, size_t length, char name[64]);
// The nearest command's name; NULL: none is near.
const char *nearest_command(const char *text);

#endif
