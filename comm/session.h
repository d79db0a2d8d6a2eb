// Session: how the two ends of a connection prove to each other that they know the key of the run. This is the protocol
// of ranks up to the welcome; what follows on a control connection is the watch's (comm/watch.h).
//
// A frame is a header of 24 bytes, all numbers little-endian: magic "MRCN" (4 bytes), version 2 (2), type (2), code
// (4), bytes of the text (4), number (8); then the text, UTF-8 without NUL, at most 512 bytes before the challenge and
// 8191 after it; then, in every frame after the challenge, a tag of 16 bytes.
//
//   from a rank                                     from rank 0
//   1 HELLO  code: 0 control, 1 data
//            number: the rank
//            text: nonce \n world \n local rank
//                  \n host \n build                 2 CHALLENGE  text: nonce
//   3 PROOF  no text                                5 SEATED     no text; or 4 REFUSED, whose text says why
//
// The nonces are 32 random bytes each, as 64 hexadecimal digits, drawn for this connection. Then:
//
//   session = HMAC-SHA256(key, HELLO | CHALLENGE), both as sent
//   tag     = the first 16 bytes of HMAC-SHA256(HMAC-SHA256(session, D), counter | header | text), where D is the text
//             "to rank 0" or "from rank 0", and the counter, 8 bytes, numbers the frames of that direction from 0
//
// The key of a control connection is the run's (comm/launch.h); that of a data connection, which a rank opens when its
// control connection has been seated, is the session of that one. A proof that is wrong is answered by a REFUSED
// without text and without tag. When all ranks have been seated, rank 0 sends each of them, on its control connection,
// 6 PEER (number: a rank, text: its host) for every rank in order, and 7 WELCOME.
//
// What this protects: who does not know the key gets no seat, and cannot insert, change, repeat or reorder a control
// frame, nor take one over from another connection or run, since every session has a key of its own. What it does not:
// nothing is encrypted; after SEATED a data connection carries bytes without tags, so that whoever can change packets
// on the way can change gradients; a key made from a text that can be guessed can be guessed by whoever sees a proof.
#pragma once
#include "base/hmac.h"
#include "comm/wire.h"

enum { NONCE_TEXT = 2 * SHA256_BYTES + 1 };

// 32 random bytes, which nobody can foresee.
void random_bytes(uint8_t bytes[SHA256_BYTES]);
void nonce_draw(char text[NONCE_TEXT]);
bool nonce_is(const char *text);
void hex_of(const uint8_t bytes[SHA256_BYTES], char text[NONCE_TEXT]);
bool hex_parse(uint8_t bytes[SHA256_BYTES], const char *text); // false: not 64 lower-case digits

// The session's key, from the two frames as they were sent.
void session_key(uint8_t session[SHA256_BYTES], const uint8_t key[SHA256_BYTES], const Frame *hello,
                 const Frame *challenge);
