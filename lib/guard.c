#define _GNU_SOURCE // uselocale
#include "lib/guard.h"
#include <omp.h>
#include <pthread.h>

// Kept until the process ends: a thread may use it at any time.
static locale_t plain;

static void make_plain(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

Guard guard_enter(maskrcnn_error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  Guard g = {0};
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g.cancel);
  fegetenv(&g.floats);
  fesetenv(FE_DFL_ENV);
  pthread_once(&once, make_plain);
  if (plain) g.locale = uselocale(plain);
  g.threads = omp_get_max_threads();
  omp_set_num_threads(1);
  if (error) error->message[0] = '\0';
  return g;
}

maskrcnn_status guard_leave(const Guard *g, maskrcnn_status status) {
  int own;
  omp_set_num_threads(g->threads);
  if (g->locale) uselocale(g->locale);
  fesetenv(&g->floats);
  pthread_setcancelstate(g->cancel, &own);
  return status;
}
