#include "comm/hello.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/machine.h"

Peer peer_here(void) {
  Peer p = {0};
  if (gethostname(p.host, sizeof p.host - 1) || !*p.host) snprintf(p.host, sizeof p.host, "unknown host");
  text_clean(p.host);
  return p;
}

Hello hello_of(const Launch *l, HelloFor connection) {
  Hello h = {.connection = connection, .rank = l->rank, .world = l->world, .local_rank = l->local_rank};
  h.peer = peer_here();
  snprintf(h.build, sizeof h.build, "%s", build_commit);
  nonce_draw(h.nonce);
  return h;
}

static void fill(Frame *f, int type, int code, int64_t number) {
  f->type = type;
  f->code = code;
  f->number = number;
  *f->text = '\0';
}

void hello_frame(const Hello *h, Frame *f) {
  fill(f, FRAME_HELLO, (int)h->connection, h->rank);
  snprintf(f->text, OPEN_TEXT + 1, "%s\n%d\n%d\n%s\n%s", h->nonce, h->world, h->local_rank, h->peer.host, h->build);
}

void challenge_frame(Frame *f) {
  fill(f, FRAME_CHALLENGE, 0, 0);
  nonce_draw(f->text);
}

void frame_send(Wire *w, const Frame *f) { wire_send(w, f->type, f->code, f->number, f->text); }

// Copies the next line of *rest, cleaned, if there is one and it fits.
static bool line(char **rest, char *out, size_t room) {
  char *text = strsep(rest, "\n");
  if (!text || strlen(text) >= room) return false;
  memcpy(out, text_clean(text), strlen(text) + 1);
  return true;
}
static bool line_int(char **rest, int *out) {
  char text[10];
  if (!line(rest, text, sizeof text) || !*text || strspn(text, "0123456789") != strlen(text)) return false;
  *out = atoi(text);
  return true;
}

bool hello_parse(Hello *h, const Frame *f) {
  char text[OPEN_TEXT + 1], *rest = text;
  *h = (Hello){0};
  if (f->type != FRAME_HELLO || f->number < 0 || f->number >= MAX_CREW || strlen(f->text) > OPEN_TEXT) return false;
  if (f->code != FOR_CONTROL && f->code != FOR_DATA) return false;
  memcpy(text, f->text, strlen(f->text) + 1);
  h->connection = (HelloFor)f->code;
  h->rank = (int)f->number;
  return line(&rest, h->nonce, sizeof h->nonce) && nonce_is(h->nonce) && line_int(&rest, &h->world) &&
         line_int(&rest, &h->local_rank) && line(&rest, h->peer.host, sizeof h->peer.host) &&
         line(&rest, h->build, sizeof h->build) && !rest;
}

void peer_send(Wire *w, int rank, const Peer *peer) { wire_send(w, FRAME_PEER, 0, rank, peer->host); }

bool peer_parse(Peer *peer, const Frame *f) {
  if (f->type != FRAME_PEER || strlen(f->text) >= sizeof peer->host) return false;
  snprintf(peer->host, sizeof peer->host, "%.*s", (int)sizeof peer->host - 1, f->text);
  text_clean(peer->host);
  return true;
}
