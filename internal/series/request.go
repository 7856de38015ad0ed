package series

import (
	"encoding/json"

	"github.com/dailyserial/serial/internal/wire"
)

// A request is one run of a script for a series, and its reply. Callers that take one number of the same type at the
// same time share a request.
type request struct {
	wire.Item
	server    *server
	typ       string // type in reports, or "" if callers of several types may share the request
	counts    string // type in the keys of the series; see keys.countedAs
	span      *Target
	n         int           // number of sequences; if callers may share the request, it is set by Arguments
	requestID string        // ID of a repeatable request, or ""
	options   *options      // rare arguments, or nil for a usual take
	keys      []any         // additional keys
	stored    *storedAnswer // contents of the stored answer, or nil if the request is not repeatable
	reads     bool          // whether the request only reads
	granted   granted       // parts of the grant, for reports

	highWater int64 // high-water mark that was sent
	reply     Reply // reply, set by Done
	err       error // failure, or refusal because replicas did not confirm the numbers; set by Done
}

// options are rare arguments of a request, which are sent as JSON. The comment at the top of serial.lua describes them.
type options struct {
	All     bool          `json:"all,omitempty"`
	Far     bool          `json:"far,omitempty"`
	Purpose string        `json:"purpose,omitempty"`
	Seq     int64         `json:"seq"`
	Keep    bool          `json:"keep,omitempty"`
	Once    *storedAnswer `json:"once,omitempty"`
	Next    *next         `json:"next,omitempty"`
	Grant   *grant        `json:"grant,omitempty"`
}

type storedAnswer struct {
	at      any    // Redis key of the stored answer
	Printed string `json:"printed"`
	Key     string `json:"key"`
	Life    int64  `json:"life"` // milliseconds
}

type next struct {
	Period   string `json:"period"`
	Expires  int64  `json:"expires"`
	Base     int64  `json:"base"`
	HasFloor bool   `json:"hasFloor,omitempty"`
	Compared bool   `json:"compared,omitempty"`
}

type grant struct {
	Checked int64     `json:"checked"` // milliseconds
	Lease   int64     `json:"lease"`   // milliseconds
	Base    int64     `json:"base"`
	Floor   *int64    `json:"floor,omitempty"`
	Lock    string    `json:"lock,omitempty"`
	Block   *[2]int64 `json:"block,omitempty"` // first sequence minus 1, and last sequence
	Entered string    `json:"entered"`
	Ceiling int64     `json:"ceiling"`
	ID      string    `json:"id"`
	Exists  bool      `json:"exists"`
}

// Arguments implements [wire.Command].
func (r *request) Arguments() []any {
	s, span := r.server, r.span
	counter, record, highWater := s.memory.find(r.counts, span)
	if r.highWater = highWater; r.Merge != (wire.Merge{}) {
		r.n = r.N
	}
	keys := r.keys
	if r.stored != nil {
		keys = append([]any{r.stored.at}, keys...)
	}
	args := make([]any, 0, 14+len(keys))
	args = append(args, nil, nil, 2+len(keys), counter, record)
	args = append(args, keys...)
	args = append(args, span.period, span.from, span.to, s.limit, span.expires, r.n, highWater)
	if r.reads {
		return args
	}
	offset := s.clock.offset.Load()
	far := s.MaxSkew >= 0 && (offset > s.skew || -offset > s.skew)
	if r.Merge != (wire.Merge{}) && !far {
		return args
	}
	return append(args, r.encode(far))
}

// encode returns the options as an argument.
func (r *request) encode(far bool) any {
	o := r.options
	if o == nil && r.stored != nil {
		o = &options{All: true}
	}
	if o != nil {
		o.Far, o.Once = far, r.stored
		text, err := json.Marshal(o)
		if err != nil {
			panic(err) // impossible: every field can be encoded
		}
		return string(text)
	}
	switch {
	case r.Merge != (wire.Merge{}):
		return "f"
	case far:
		return "af"
	}
	return "a"
}

// Done implements [wire.Command]. It parses the reply, updates the server's clock and the high-water mark, and reports
// gaps.
func (r *request) Done() {
	s, in := r.server, &r.Result
	if in.Err != nil {
		r.err = in.Err
		s.gaps.ended(r)
		return
	}
	r.reply, r.err = digest(in.Value, r.n)
	r.reply.Sent, r.reply.Received, r.reply.Earlier = in.Sent, in.Received, in.Earlier
	if r.err != nil {
		r.Lost(r.err)
		return
	}
	if r.reply.Status == Issued || r.reply.Status == Repeated { // otherwise there is no number to confirm
		r.reply.Unconfirmed = in.Unconfirmed
	}
	r.reply.offset, r.reply.before = s.clock.learn(r.reply.Now, in.Sent, in.Received)
	switch {
	case r.reply.Unconfirmed != nil:
		r.err = &Refusal{Reply: Reply{Status: Unconfirmed, Unconfirmed: in.Unconfirmed}, Type: r.typ, Span: r.span}
	case r.reply.Status == Issued && r.reply.Count > 0:
		s.memory.remember(r.counts, r.span, r.reply.Last, &s.clock)
	}
	if r.err != nil || r.options != nil {
		s.gaps.ended(r)
	}
}

// share returns the first and the last sequence of the caller at the given position. It returns false if there are none
// left for the caller.
func (r *request) share(position int) (first, last int64, ok bool) {
	if r.reply.Status != Issued || r.reply.Count == 0 || position >= r.reply.Count {
		return 0, 0, false
	}
	if r.Merge == (wire.Merge{}) {
		return r.reply.Last - int64(r.reply.Count) + 1, r.reply.Last, true
	}
	last = r.reply.Last - int64(r.reply.Count-1-position)
	return last, last, true
}

// Lost implements [wire.Command]. It reports that an attempt without a reply may have taken numbers.
func (r *request) Lost(error) { r.server.gaps.lost(r) }

// Leave implements [wire.Command]. It adds 1 to the number of gaps that may be reported, because Left may report one.
func (r *request) Leave() { r.server.gaps.addPending(1) }

// Left implements [wire.Command]. It reports the sequences of the caller at the given position as a gap, because the
// caller has left.
func (r *request) Left(position int) {
	g := &r.server.gaps
	defer g.addPending(-1)
	if first, last, ok := r.share(position); ok && r.err == nil && r.requestID == "" {
		g.skip(r.typ, r.span, CallerLeft, first-1, last)
	}
	if r.reply.Status == clocked {
		g.burn(r) // the block will not be sent again
	}
}
