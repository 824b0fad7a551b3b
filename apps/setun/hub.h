// The model hub: requests and the token for them.
#ifndef SETUN_APP_HUB_H
#define SETUN_APP_HUB_H

#include "model_files.h"
#include "transfer.h"

typedef struct hub {
  client *client;
  char *token; // NULL: none
} hub;

// `endpoint` NULL: HF_ENDPOINT, or https://huggingface.co. The token is that in HF_TOKEN, or in the file named by
// HF_TOKEN_PATH. False after a report; must be closed in either case.
bool hub_open(const char *endpoint, int64_t retries, hub *h);
void hub_close(hub *h);
// The files of a repository at a revision, with their checksums; those with unusual names are skipped and counted.
// False after a report or a signal.
bool hub_list(const hub *h, const char *repository, const char *revision, file_list *files, size_t *left_out);
// The address of a file. Freed with free. NULL after a report.
char *hub_url(const hub *h, const char *repository, const char *revision, const char *path);
// Splits a user's name for a model into repository, revision (*revision is unchanged unless in the address) and
// selector: "org/name", "org/name:word", either with the hub's host before it, or the address of a page or of a file.
// The texts are in `buffer`. False: none of these.
bool hub_parse(const hub *h, const char *word, char buffer[1024], char repository[256], const char **revision,
               const char **selector);

#endif
