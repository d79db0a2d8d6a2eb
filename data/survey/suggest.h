// Suggests options of ./train for a data set, with the reason of each.
#pragma once
#include "data/survey/advice.h"
#include "data/survey/orientation.h"

typedef struct SuggestFor {
  bool keep_empty;  // images without objects are used
  bool few_classes; // objects of other classes were left out: images without objects are not the data's background
  int canvases;     // that the data set was opened with
  // train's options that hold images out, with a space before them; "": none. Without a split to evaluate on they are
  // suggested.
  const char *holdout;
  bool is_suggested, unscored; // unscored: there is no split to evaluate on, and too few images to hold some out
  bool weights;                // training starts from weights, …
  bool pastes_whole;           // … which paste masks over whole pixels, as torchvision's do
  bool gpu;                    // there is one
} SuggestFor;

typedef struct Suggestion {
  char *flags; // "--size … --batch …"
  int batch;   // batch size in the flags
  char *reason[8];
  int reasons; // one sentence for each of the main options: "--size 512: …"
} Suggestion;

// val may be NULL.
void suggest(Suggestion *s, const Split *train, const Split *val, const SuggestFor *how);
void suggestion_free(Suggestion *s);
