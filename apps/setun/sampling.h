// The options for sampling, and the sampler made from them and the model's own defaults.
#ifndef SETUN_APP_SAMPLING_H
#define SETUN_APP_SAMPLING_H

#include "options.h"
#include "setun.h"

// Begin with sampling_unset: options that are not given keep the model's value.
typedef struct sampling_options {
  double temperature, top_p, min_p, typical, repeat_penalty, presence_penalty, frequency_penalty, dry_multiplier,
      dry_base, xtc_probability, xtc_threshold, dynatemp_range, dynatemp_exponent, top_n_sigma, mirostat_tau,
      mirostat_eta;
  int64_t top_k, repeat_last_n, dry_allowed_length, dry_penalty_last_n, mirostat;
  optional_seed seed;
  text_list biases, breakers;
  const char *samplers, *sequence; // the order of the steps, by names or letters
} sampling_options;

extern const option sampling_rows[26];
#define SAMPLING_GROUP(type)                                                                                           \
  { "sampling", sampling_rows, 26, offsetof(type, sampling) }

sampling_options sampling_unset(void);
// Checks what the parser cannot check. 0, or 2 after a report.
int check_sampling(const command *self, const sampling_options *o);
// Only the parameters: the model's own, with the options applied. The seed is unchanged unless given. False after a
// report.
bool sampling_params(const setun_model *model, const sampling_options *o, setun_sampler_params *params);
// Makes the sampler; without --seed one is chosen. *params receives its parameters. False after a report.
bool make_sampler(const setun_model *model, const sampling_options *o, setun_sampler **sampler,
                  setun_sampler_params *params);
// One or two notes for --verbose: the settings, and which of them are the model's own.
void print_sampling(const setun_model *model, const sampling_options *o, const setun_sampler_params *params);

#endif
