package serial

import (
	"context"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// NextOnce issues a number for a request that may come again. The same request of the same type, from any process, gets the
// same number for 48 hours, across midnights too. It is for callers that deliver at least once, such as queues and HTTP
// clients that retry, and for repeating a call whose answer was lost: the repetition leaves neither a duplicate nor a gap.
//
// requestID is 1 to 128 bytes of printable UTF-8 that tell the request from every other of that type, such as a message's
// ID. An Idempotency-Key is not enough: two users may send the same one, so combine it with the user's ID, as the recipe in
// the README does. A request that was refused is not remembered. One that was answered is answered again even if the period
// is by then exhausted or lost. A request takes about 250 bytes of Redis's memory for those 48 hours; if Redis loses them,
// a request that comes again gets another number.
//
// The number is repeated as it was printed, even by a Generator with another template or [Period]; a hidden number only by one
// that has its key, see [WithHiddenSequence].
//
// The answer is final. If the number turns out to be taken already, which only a floor that knew too little can cause, the
// same request would get it again: use [Generator.Next] for that request.
//
// The call costs one round trip, which it does not share with other calls. Errors are those of [Generator.NextNumber], and
// [ErrInvalidRequest] for an invalid requestID, for which nothing was sent. [ErrConflict] may also mean that the
// request was answered with a hidden number, whose key this Generator does not have. After any other error, and after a
// cancelled call, ask again with the same requestID.
func (g *Generator) NextOnce(ctx context.Context, typ, requestID string) (Number, error) {
	var c call
	err := c.begin(ctx, g, typ)
	if err == nil {
		if msg := checkRequest(requestID); msg != "" {
			err = fmt.Errorf("%w: request %.160q: %s", ErrInvalidRequest, requestID, msg)
		} else {
			c.request = requestID
			err = c.sequence(ctx, 1)
		}
	}
	if err = c.finishIssue(ctx, 1, err); err != nil {
		return Number{}, err
	}
	return c.number(c.made.last), nil
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
