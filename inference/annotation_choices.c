#include "inference/annotation_choices.h"
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "engine/identity.h"

typedef struct AnnotationChoice {
  const char *key, *const *texts; // as in a run's identity, which has those that are not the default, 0
  int *value;
  OptionSource from;
} AnnotationChoice;
enum { CHOICES = 3 };

static void list_choices(InferOptions *o, AnnotationChoice choice[CHOICES]) {
  choice[0] = (AnnotationChoice){"crowd", crowd_choices, &o->crowd, o->from.crowd};
  choice[1] = (AnnotationChoice){"areas", measure_choices, &o->areas, o->from.areas};
  choice[2] = (AnnotationChoice){"boxes", measure_choices, &o->boxes, o->from.boxes};
}

static int trained_with(const AnnotationChoice *c, const Checkpoint *weights) {
  const char *run = ckpt_find_meta(weights, "run");
  char *text = run ? identity_text(run, c->key) : NULL;
  int value = 0;
  for (int i = 0; text && c->texts[i]; i++)
    if (!strcmp(c->texts[i], text)) value = i;
  free(text);
  return value;
}

void annotation_choices_settle(InferOptions *o, const Checkpoint *weights) {
  AnnotationChoice choice[CHOICES];
  list_choices(o, choice);
  for (int i = 0; i < CHOICES; i++)
    if (choice[i].from != FROM_GIVEN) *choice[i].value = trained_with(&choice[i], weights);
}

char *annotation_choices_text(const InferOptions *o, const Checkpoint *weights) {
  AnnotationChoice choice[CHOICES];
  InferOptions own = *o;
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  const char *between = "";
  list_choices(&own, choice);
  for (int i = 0; i < CHOICES; i++) {
    const AnnotationChoice *c = &choice[i];
    const int trained = trained_with(c, weights);
    if (*c->value == 0 && trained == 0) continue;
    fprintf(f, "%s--%s %s, ", between, c->key, c->texts[*c->value]);
    if (*c->value == trained)
      fprintf(f, "as in training");
    else
      fprintf(f, "but training had --%s %s", c->key, c->texts[trained]);
    between = "; ";
  }
  text_close(f);
  if (*text) return text;
  free(text);
  return NULL;
}
