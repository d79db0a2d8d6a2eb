// What a run's page shows, as plain data of which any part may be missing; texts may hold anything.
#pragma once
#include <stdint.h>
#include "data/coco/confusion.h"

// Name and value, as of an option.
typedef struct PagePair {
  char *name, *value;
} PagePair;
typedef struct PagePairs {
  PagePair *item;
  int n;
  size_t cap;
} PagePairs;
void page_pair_add(PagePairs *p, const char *name, const char *value); // copies

typedef struct PageCurve {
  char *key, *label; // key: what runs are compared by; may be NULL
  double *x, *y;
  int n;
  size_t cap_x, cap_y;
} PageCurve;
void page_curve_add(PageCurve *c, double x, double y);

// Curves on the same axes.
typedef struct PagePanel {
  char *title, *x_label, *unit;
  bool log_y, noisy; // noisy: a running mean is drawn
  PageCurve *curve;
  int n;
  size_t cap;
} PagePanel;
typedef struct PagePanels {
  PagePanel *item;
  int n;
  size_t cap;
} PagePanels;
PagePanel *page_panel_add(PagePanels *p, const char *title, const char *x_label, const char *unit);
PageCurve *page_panel_curve(PagePanel *p, const char *key, const char *label);

typedef struct PageMemory {
  char *name, *place;
  double bytes;
} PageMemory;
typedef struct PagePart { // of the step; seconds
  char *name;
  double forward, backward;
} PagePart;

enum { PAGE_COLUMNS = 12, PAGE_CATEGORY_CHARTS = 100 }; // of categories; those that are shown by themselves
typedef struct PageCategory {
  char *name;
  double value[PAGE_COLUMNS]; // NaN: there is none
} PageCategory;

// An image, and beside it what a model made of it.
typedef struct PagePicture {
  char *group;         // "worst", "best": pictures of one group stand together
  char *file;          // as it is called
  char *caption;       // one line
  char *truth, *found; // data: addresses; found NULL: there is one picture
} PagePicture;

// What an evaluation found.
enum { PAGE_UNSCORED = -1, PAGE_OF_WEIGHTS = -2 };
typedef struct PageEvaluation {
  int64_t step; // PAGE_UNSCORED: there was none; PAGE_OF_WEIGHTS: of no run, whose steps the page would show, too
  int images, left_out;
  PagePairs metrics;
  char *column[PAGE_COLUMNS]; // what the values of categories are
  int columns;
  PageCategory *category; // in the order in which they are shown
  int categories;
  PagePanels panels, category_panels; // precision over recall
  char *rule;                         // what the confusion counts, in a sentence; NULL: there is none
  Confusion confusion;                // owned, names included
  PagePicture *picture;
  int pictures;
} PageEvaluation;

typedef struct RunPage {
  char *name, *state;          // "coco-12", "complete"
  PagePairs facts;             // what stands on top, in a few words each
  PagePairs settings, machine; //
  char *command;               // as the run was started
  char **warning;              // a sentence each
  int warnings;
  char *data;        // what there is to train on, lines
  PagePanels panels; // over steps
  int metrics;       // which of them has the scores; -1: none
  PageMemory *memory;
  int memories;
  PagePart *part;
  int parts;
  int timed_steps; // that the parts are means of
  PageEvaluation evaluation;
} RunPage;
void run_page_free(RunPage *r);
void page_picture_free(PagePicture *p);
