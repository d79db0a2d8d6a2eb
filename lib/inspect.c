#include "lib/inspect.h"
#include <string.h>
#include "lib/handle.h"

maskrcnn_status inspect_engine(maskrcnn *h, void (*what)(Engine *e, void *context), void *context,
                               maskrcnn_error *error) {
  Inspection look = {.what = what, .context = context};
  pthread_mutex_lock(&h->submitting); // one at a time
  pthread_mutex_lock(&h->lock);
  h->look = &look;
  handle_ask(h);
  while (h->look && h->state == MASKRCNN_OK) pthread_cond_wait(&h->change, &h->lock);
  h->look = NULL;
  const maskrcnn_status status = handle_alive(h, error);
  pthread_mutex_unlock(&h->lock);
  pthread_mutex_unlock(&h->submitting);
  return status;
}

void inspect_counters(maskrcnn *h, int64_t counter[MAX_COUNTERS]) {
  pthread_mutex_lock(&h->lock);
  memcpy(counter, h->counter, sizeof h->counter);
  pthread_mutex_unlock(&h->lock);
}
