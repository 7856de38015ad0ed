package serial

import (
	"context"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// NextOnce issues a number for a request that may come again: the same request of the same type, from any process, gets
// the same number for 48 hours, across midnights too. It is for callers that deliver at least once, queues and retried
// HTTP requests, and for retrying a call of which the answer was lost: neither leaves a duplicate, or a gap.
//
// requestID is 1 to 128 bytes of printable UTF-8 that tell the request from every other of that type, such as a message's
// ID. An Idempotency-Key is not enough: two users may send the same one, so combine it with the ID of the user, as the
// recipe in the README does. A request that was refused is not remembered, and one that was answered is answered again even
// if the period is by now exhausted or lost. A request takes about 250 bytes of Redis's memory for those 48 hours; if Redis
// loses them, a request that comes again gets another number.
//
// The number is repeated as it was printed, by a Generator with another template or [Period] too.
//
// The answer stays. Should the number be taken already, as only a floor that knew too little can bring about, the same
// request would get it again: use [Generator.Next] for that one.
//
// The call costs one round trip, and does not share it with others. Errors are those of [Generator.NextNumber], and one
// for an invalid requestID, where nothing was sent. [ErrConflict] also tells that version 0.1.0 of this package answered the
// request with a number that this Generator cannot print: of another [Period], or larger than its template holds. After any
// other error, and after a cancelled call, ask again with the same requestID.
func (g *Generator) NextOnce(ctx context.Context, typ, requestID string) (string, error) {
	var c call
	err := c.begin(ctx, g, typ)
	if err == nil {
		if msg := checkRequest(requestID); msg != "" {
			err = fmt.Errorf("serial: request %.160q: %s", requestID, msg)
		} else {
			c.request = requestID
			err = c.sequence(ctx, 1)
		}
	}
	if err = c.toldIssued(ctx, 1, err); err != nil {
		return "", err
	}
	return c.number(c.made.last).String(), nil
}

// checkRequest says what is wrong with the ID of a request, or nothing.
func checkRequest(id string) string {
	const most = 128
	switch {
	case id == "":
		return "empty; allowed are 1 to 128 bytes"
	case len(id) > most:
		return fmt.Sprintf("%d bytes; allowed are 1 to %d", len(id), most)
	case !utf8.ValidString(id):
		return "not valid UTF-8; allowed is printable UTF-8"
	}
	for _, r := range id {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("it has %q; allowed is printable UTF-8", r)
		}
	}
	return ""
}
