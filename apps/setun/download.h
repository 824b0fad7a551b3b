// The files of one model on their way from the hub to their folder.
#ifndef SETUN_APP_DOWNLOAD_H
#define SETUN_APP_DOWNLOAD_H

#include "hub.h"

typedef struct download download;

// Locks the folder that the files go to. All that it is given must outlive it. NULL after a report or a signal.
download *download_open(const hub *h, const char *repository, const char *revision, const char *folder);
// Adds a file, and looks at what of it is there: where that is all of it, nothing is received. False after a report or
// a signal, as what follows.
bool download_add(download *d, const model_file *file);
// Receives what is missing; the files are whole then, but not yet in their places.
bool download_receive(download *d);
// Puts them there, `last` after all others.
bool download_finish(download *d, const model_file *last);
void download_free(download *d);

#endif
