// run.json, as training/run_record.h has it, or of older versions report/session.json, into what a page shows.
#pragma once
#include "page/run_page.h"

typedef struct Session { // what a page's facts are made of
  char *model, *data, *device;
  double images, val_images, batch, world, steps, per_epoch; // 0: not known
  int metrics;                                               // place of their panel; -1: there is none
} Session;

// Fills what of the page stands in the file, and the session; of a run that has none, the curves that a log may hold.
// False, naming the place, where the file is not what it should be. Free the session in any case.
bool session_read(const char *path, RunPage *p, Session *s, Err *err);
void session_free(Session *s);
void page_warn(RunPage *p, char *text); // one warning more; takes the text
