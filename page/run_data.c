#include "page/run_data.h"
#include <stdlib.h>
#include "base/alloc.h"

void page_pair_add(PagePairs *p, const char *name, const char *value) {
  array_reserve((void **)&p->item, &p->cap, (size_t)p->n + 1, sizeof *p->item);
  p->item[p->n++] = (PagePair){xstrdup(name), xstrdup(value)};
}

void page_curve_add(PageCurve *c, double x, double y) {
  array_reserve((void **)&c->x, &c->cap_x, (size_t)c->n + 1, sizeof *c->x);
  array_reserve((void **)&c->y, &c->cap_y, (size_t)c->n + 1, sizeof *c->y);
  c->x[c->n] = x;
  c->y[c->n++] = y;
}

PagePanel *page_panel_add(PagePanels *p, const char *title, const char *x_label, const char *unit) {
  array_reserve((void **)&p->item, &p->cap, (size_t)p->n + 1, sizeof *p->item);
  p->item[p->n] = (PagePanel){.title = xstrdup(title), .x_label = xstrdup(x_label), .unit = xstrdup(unit)};
  return &p->item[p->n++];
}

PageCurve *page_panel_curve(PagePanel *p, const char *key, const char *label) {
  array_reserve((void **)&p->curve, &p->cap, (size_t)p->n + 1, sizeof *p->curve);
  p->curve[p->n] = (PageCurve){.key = key ? xstrdup(key) : NULL, .label = xstrdup(label)};
  return &p->curve[p->n++];
}

// ---- freeing --------------------------------------------------------------------------------------------------------

static void free_pairs(PagePairs *p) {
  for (int i = 0; i < p->n; i++) {
    free(p->item[i].name);
    free(p->item[i].value);
  }
  free(p->item);
}

static void free_panel(PagePanel *p) {
  for (int i = 0; i < p->n; i++) {
    free(p->curve[i].key);
    free(p->curve[i].label);
    free(p->curve[i].x);
    free(p->curve[i].y);
  }
  free(p->curve);
  free(p->title);
  free(p->x_label);
  free(p->unit);
}

static void free_panels(PagePanels *p) {
  for (int i = 0; i < p->n; i++) free_panel(&p->item[i]);
  free(p->item);
}

static void free_confusion(Confusion *c) {
  for (int i = 0; c->name && i < c->classes; i++) free((char *)c->name[i]);
  free((void *)c->name);
  free((void *)c->count);
}

void page_picture_free(PagePicture *p) {
  free(p->group);
  free(p->file);
  free(p->caption);
  free(p->truth);
  free(p->found);
}

static void free_evaluation(PageEvaluation *e) {
  free_pairs(&e->metrics);
  for (int i = 0; i < e->columns; i++) free(e->column[i]);
  for (int i = 0; i < e->categories; i++) free(e->category[i].name);
  free(e->category);
  free_panels(&e->panels);
  free_panels(&e->category_panels);
  free(e->rule);
  free_confusion(&e->confusion);
  for (int i = 0; i < e->pictures; i++) page_picture_free(&e->picture[i]);
  free(e->picture);
}

void run_page_free(RunPage *r) {
  free(r->name);
  free(r->state);
  free_pairs(&r->facts);
  free_pairs(&r->settings);
  free_pairs(&r->machine);
  free(r->command);
  for (int i = 0; i < r->warnings; i++) free(r->warning[i]);
  free(r->warning);
  free(r->data);
  free_panels(&r->panels);
  for (int i = 0; i < r->memories; i++) {
    free(r->memory[i].name);
    free(r->memory[i].place);
  }
  free(r->memory);
  for (int i = 0; i < r->parts; i++) free(r->part[i].name);
  free(r->part);
  free_evaluation(&r->evaluation);
  *r = (RunPage){0};
}
