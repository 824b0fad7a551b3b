// Expressions inside other texts, such as Lark's terminals, for the files of this directory.
#ifndef SETUN_CONSTRAINT_EXPRESSION_H
#define SETUN_CONSTRAINT_EXPRESSION_H

#include "constraint/reader.h"

typedef struct st_expression_flags {
  bool ignore_case, dot_all; // i and s of other dialects
} st_expression_flags;
// st_expression_term from a reader's place to its end, with flags, for the whole text.
setun_status st_expression_whole(st_terms *t, st_reader r, st_expression_flags flags, st_term *out);

#endif
