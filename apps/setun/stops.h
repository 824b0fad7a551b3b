// Stop texts: the option --stop of commands that generate text.
#ifndef SETUN_APP_STOPS_H
#define SETUN_APP_STOPS_H

#include "options.h"
#include "setun.h"

enum { STOPS_MOST = 64 };
#define STOP_ROW(offset)                                                                                               \
  {                                                                                                                    \
    'r', "stop", OPTION_LIST, (offset), "TEXT", 1, STOPS_MOST,                                                         \
        "stop at this text, which is not shown; may be given several times"                                            \
  }

// With `escape`, \n and the like are interpreted as with -e. False after a report. *stops is freed with
// setun_stops_free.
bool open_stops(const text_list *texts, bool escape, setun_stops **stops);

#endif
