#include "comm/hello.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/machine.h"

static unsigned long long namespace_of(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 ? (unsigned long long)st.st_ino : 0;
}

// The id of this boot of the kernel or, on systems without one, of the host.
static void boot_id(char *text, size_t room) {
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (!f || !fgets(text, (int)room, f)) gethostname(text, room - 1);
  if (f) fclose(f);
}

Peer peer_here(void) {
  Peer p = {.pid = getpid()};
  char boot[64] = "";
  boot_id(boot, sizeof boot);
  uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
  for (const char *c = boot; *c; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
  snprintf(p.namespaces, sizeof p.namespaces, "%016llx-%llx-%llx", (unsigned long long)hash,
           namespace_of("/proc/self/ns/pid"), namespace_of("/proc/self/ns/net"));
  if (gethostname(p.host, sizeof p.host - 1) || !*p.host) snprintf(p.host, sizeof p.host, "unknown host");
  text_clean(p.host);
  return p;
}

Hello hello_of(const Launch *l, const char *nonce) {
  Hello h = {.rank = l->rank, .world = l->world, .local_rank = l->local_rank, .peer = peer_here()};
  snprintf(h.token, sizeof h.token, "%s", l->token);
  snprintf(h.build, sizeof h.build, "%s", build_commit);
  snprintf(h.nonce, sizeof h.nonce, "%s", nonce);
  return h;
}

void hello_send(Wire *w, const Hello *h, HelloFor connection) {
  char text[512];
  snprintf(text, sizeof text, "%d\n%d\n%ld\n%s\n%s\n%s\n%s\n%s", h->world, h->local_rank, (long)h->peer.pid,
           h->peer.host, h->peer.namespaces, h->token, h->build, h->nonce);
  wire_send(w, FRAME_HELLO, (int)connection, h->rank, text);
}

// Copies the next line of *rest, cleaned, if there is one and it fits.
static bool line(char **rest, char *out, size_t room) {
  char *text = strsep(rest, "\n");
  if (!text || strlen(text) >= room) return false;
  memcpy(out, text_clean(text), strlen(text) + 1);
  return true;
}
static bool line_int(char **rest, int *out) {
  char text[16], *end;
  if (!line(rest, text, sizeof text)) return false;
  long value = strtol(text, &end, 10);
  *out = (int)value;
  return end > text && !*end && value >= 0 && value <= INT_MAX;
}

bool hello_parse(Hello *h, const Frame *f) {
  char text[WIRE_TEXT + 1], *rest = text;
  int pid;
  memcpy(text, f->text, sizeof text);
  if (f->type != FRAME_HELLO || f->number < 0 || f->number > INT_MAX) return false;
  if (f->code != FOR_CONTROL && f->code != FOR_DATA) return false;
  h->connection = (HelloFor)f->code;
  h->rank = (int)f->number;
  if (!line_int(&rest, &h->world) || !line_int(&rest, &h->local_rank) || !line_int(&rest, &pid)) return false;
  h->peer.pid = pid;
  return line(&rest, h->peer.host, sizeof h->peer.host) && line(&rest, h->peer.namespaces, sizeof h->peer.namespaces) &&
         line(&rest, h->token, sizeof h->token) && line(&rest, h->build, sizeof h->build) &&
         line(&rest, h->nonce, sizeof h->nonce) && !rest;
}

void peer_send(Wire *w, int rank, const Peer *peer) {
  char text[256];
  snprintf(text, sizeof text, "%ld\n%s\n%s", (long)peer->pid, peer->host, peer->namespaces);
  wire_send(w, FRAME_PEER, 0, rank, text);
}

bool peer_parse(Peer *peer, const Frame *f) {
  char text[WIRE_TEXT + 1], *rest = text;
  int pid;
  memcpy(text, f->text, sizeof text);
  if (f->type != FRAME_PEER || !line_int(&rest, &pid)) return false;
  peer->pid = pid;
  return line(&rest, peer->host, sizeof peer->host) && line(&rest, peer->namespaces, sizeof peer->namespaces) && !rest;
}
