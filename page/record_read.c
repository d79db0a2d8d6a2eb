#include "page/record_read.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/record.h"

void session_free(Session *s) {
  free(s->model);
  free(s->data);
  free(s->device);
}

// Any value that is no list and no object, as people read it; NULL for null. Owned.
static char *read_value(Json *j) {
  char text[NUMBER_TEXT];
  size_t n;
  switch (json_peek(j)) {
  case JSON_STRING: return xstrdup(json_string(j, &n));
  case JSON_NUMBER: return xstrdup(number_text(json_number(j), text));
  case JSON_BOOL: return xstrdup(json_bool(j) ? "yes" : "no");
  default: json_skip(j); return NULL;
  }
}

static double read_number(Json *j) {
  if (json_peek(j) == JSON_NUMBER) return json_number(j);
  json_skip(j);
  return NAN;
}

static void set(char **to, char *value) {
  free(*to);
  *to = value;
}

static void read_pair(Json *j, const char *key, PagePairs *to) {
  char *name = xstrdup(key), *value = read_value(j);
  if (value) page_pair_add(to, name, value);
  free(name);
  free(value);
}

static void read_pairs(Json *j, PagePairs *to) {
  const char *key;
  if (json_begin_object(j))
    while ((key = json_key(j))) read_pair(j, key, to);
}

// {"flip": {"value": 0.5, "from": "default"}, …}, or of older versions {"flip": "0.5", …}.
static void read_settings(Json *j, PagePairs *to) {
  const char *key;
  if (!json_begin_object(j)) return;
  while ((key = json_key(j))) {
    if (json_peek(j) != JSON_OBJECT) {
      read_pair(j, key, to);
      continue;
    }
    char *name = xstrdup(key);
    json_begin_object(j);
    while ((key = json_key(j))) {
      if (strcmp(key, "value"))
        json_skip(j);
      else if (json_peek(j) == JSON_BOOL)
        page_pair_add(to, name, json_bool(j) ? "true" : "false");
      else
        read_pair(j, name, to);
    }
    free(name);
  }
}

void page_warn(RunPage *p, char *text) {
  p->warning = xrealloc(p->warning, ((size_t)p->warnings + 1) * sizeof *p->warning);
  p->warning[p->warnings++] = text;
}

static void read_warnings(Json *j, RunPage *p) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j))
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          char *text = read_value(j);
          if (text) page_warn(p, text);
        }
}

static void read_memory(Json *j, RunPage *p) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      p->memory = xrealloc(p->memory, ((size_t)p->memories + 1) * sizeof *p->memory);
      PageMemory *m = &p->memory[p->memories++];
      *m = (PageMemory){.bytes = NAN};
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          if (!strcmp(key, "name"))
            set(&m->name, read_value(j));
          else if (!strcmp(key, "place"))
            set(&m->place, read_value(j));
          else if (!strcmp(key, "bytes"))
            m->bytes = read_number(j);
          else
            json_skip(j);
        }
    }
}

static void read_parts(Json *j, RunPage *p) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      p->part = xrealloc(p->part, ((size_t)p->parts + 1) * sizeof *p->part);
      PagePart *part = &p->part[p->parts++];
      *part = (PagePart){.backward = NAN};
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          if (!strcmp(key, "name"))
            set(&part->name, read_value(j));
          else if (!strcmp(key, "forward"))
            part->forward = read_number(j);
          else if (!strcmp(key, "backward"))
            part->backward = read_number(j);
          else
            json_skip(j);
        }
      if (!isfinite(part->forward)) part->forward = 0;
    }
}

static void read_curves(Json *j, PagePanel *panel) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      char *name = NULL, *label = NULL;
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          char **to = !strcmp(key, "key") ? &name : !strcmp(key, "label") ? &label : NULL;
          if (to)
            set(to, read_value(j));
          else
            json_skip(j);
        }
      if (name) page_panel_curve(panel, name, label ? label : name);
      free(name);
      free(label);
    }
}

static void read_panels(Json *j, RunPage *p, Session *s) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      PagePanel *panel = page_panel_add(&p->panels, "", "step", "");
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          char **text = !strcmp(key, "title") ? &panel->title : !strcmp(key, "unit") ? &panel->unit : NULL;
          bool *flag = !strcmp(key, "log") ? &panel->log_y : !strcmp(key, "noisy") ? &panel->noisy : NULL;
          if (text) {
            char *value = read_value(j);
            set(text, value ? value : xstrdup(""));
          } else if (flag) {
            *flag = json_bool(j);
          } else if (!strcmp(key, "metrics")) {
            if (json_bool(j)) s->metrics = p->panels.n - 1;
          } else if (!strcmp(key, "curves")) {
            read_curves(j, panel);
          } else {
            json_skip(j);
          }
        }
    }
}

// One member of the file.
static void read_member(Json *j, const char *key, RunPage *p, Session *s) {
  static const char *const of_origin[] = {"date", "commit", "clean"};
  const struct {
    const char *key;
    char **to;
  } texts[] = {{"state", &p->state}, {"data_text", &p->data}, {"command", &p->command},
               {"model", &s->model}, {"data", &s->data},      {"device", &s->device}};
  const struct {
    const char *key;
    double *to;
  } numbers[] = {{"images", &s->images}, {"val_images", &s->val_images}, {"batch", &s->batch},
                 {"world", &s->world},   {"steps", &s->steps},           {"per_epoch", &s->per_epoch}};
  for (int i = 0; i < COUNT(texts); i++)
    if (!strcmp(key, texts[i].key)) {
      set(texts[i].to, read_value(j));
      return;
    }
  for (int i = 0; i < COUNT(numbers); i++)
    if (!strcmp(key, numbers[i].key)) {
      *numbers[i].to = read_number(j);
      return;
    }
  for (int i = 0; i < COUNT(of_origin); i++)
    if (!strcmp(key, of_origin[i])) {
      read_pair(j, of_origin[i], &p->machine);
      return;
    }
  if (!strcmp(key, "machine"))
    read_pairs(j, &p->machine);
  else if (!strcmp(key, "settings"))
    read_settings(j, &p->settings);
  else if (!strcmp(key, "warnings"))
    read_warnings(j, p);
  else if (!strcmp(key, "panels"))
    read_panels(j, p, s);
  else if (!strcmp(key, "timed_steps"))
    p->timed_steps = (int)json_int(j);
  else if (!strcmp(key, "parts"))
    read_parts(j, p);
  else if (!strcmp(key, "memory"))
    read_memory(j, p);
  else
    json_skip(j);
}

// Of a run that has no session's file: what its log may hold.
static void default_panels(RunPage *p, Session *s) {
  static const struct {
    const char *title, *unit, *curve[4][2]; // key, label
    bool log_y, noisy;
  } all[] = {{"Losses", "loss", {{"loss", "total"}, {"loss_mask", "mask"}}, true, true},
             {"Average precision",
              "AP",
              {{"bbox_AP", "box AP"}, {"bbox_AP50", "box AP50"}, {"segm_AP", "mask AP"}, {"segm_AP50", "mask AP50"}},
              false,
              false},
             {"Accuracy", "share of images", {{"val_top1", "top-1"}, {"val_top5", "top-5"}}, false, false},
             {"Gradient norm", "L2 norm", {{"grad_norm", "Gradient norm"}}, true, true},
             {"Learning rate", "per step", {{"lr", "Learning rate"}}, false, false},
             {"Speed", "images per second", {{"img_s", "Speed"}}, false, false},
             {"Wait for data", "seconds a step", {{"wait", "Wait for data"}}, false, true}};
  for (int i = 0; i < COUNT(all); i++) {
    PagePanel *panel = page_panel_add(&p->panels, all[i].title, "step", all[i].unit);
    panel->log_y = all[i].log_y;
    panel->noisy = all[i].noisy;
    for (int k = 0; k < COUNT(all[i].curve) && all[i].curve[k][0]; k++)
      page_panel_curve(panel, all[i].curve[k][0], all[i].curve[k][1]);
  }
  s->metrics = 1;
}

bool session_read(const char *path, RunPage *p, Session *s, Err *err) {
  Json j;
  const char *key;
  size_t size;
  if (!path_is_file(path)) {
    default_panels(p, s);
    return true;
  }
  char *text = file_read(path, &size, err);
  if (!text) return false;
  json_open(&j, path, text, size);
  if (json_begin_object(&j))
    while ((key = json_key(&j))) {
      char *name = xstrdup(key); // what follows may read strings
      read_member(&j, name, p, s);
      free(name);
    }
  const bool ok = json_done(&j) || err_set(err, "%s", j.err.msg);
  json_close(&j);
  free(text);
  return ok;
}
