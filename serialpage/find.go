package serialpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/dailyserial/serial"
)

// allSeries returns the series that the application shows, with their defaults.
func (h *handler) allSeries(ctx context.Context) ([]Series, error) {
	all, err := h.Options.Series(ctx)
	if err != nil {
		return nil, unavailable(fmt.Errorf("Options.Series: %w", err))
	}
	seen := map[string]bool{}
	all = slices.Clone(all) // the caller's slice does not change
	for i := range all {
		s := &all[i]
		series, wrong := "", error(nil)
		if s.Source == nil {
			wrong = errors.New("Source is nil")
		} else {
			series, wrong = s.Source.scheme().Series(s.Type)
		}
		s.Key = cmp.Or(s.Key, s.Type, series) // numbers may have no type
		s.Name = cmp.Or(s.Name, s.Type, series)
		switch {
		case wrong != nil:
		case seen[s.Key]:
			wrong = errors.New("another series has the same Key")
		case len(s.Key) > 255:
			wrong = fmt.Errorf("a Key of %d bytes; want at most 255", len(s.Key))
		case len(s.Earlier) > 0: // an audit of nothing refuses schemes that do not fit
			_, wrong = s.Source.scheme().Audit(s.Type, serial.At(time.Now()), 0, noTexts, serial.WithEarlier(s.Earlier...))
		}
		if wrong != nil {
			return nil, &problem{status: http.StatusInternalServerError, text: "These pages are not configured correctly.",
				cause: fmt.Errorf("series %q: %w", s.Key, wrong)}
		}
		seen[s.Key] = true
	}
	return all, nil
}

// find returns the series that a query or a form names.
func (h *handler) find(ctx context.Context, query url.Values) (*Series, error) {
	all, err := h.allSeries(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s Series) bool { return s.Key == query.Get("key") })
	if i < 0 {
		return nil, notFound("There is no such series.")
	}
	return &all[i], nil
}

// findPeriod returns the series and the period that a query or a form names.
func (h *handler) findPeriod(ctx context.Context, query url.Values) (*Series, span, error) {
	s, err := h.find(ctx, query)
	if err != nil {
		return nil, span{}, err
	}
	at, err := time.Parse(time.RFC3339, query.Get("start"))
	if err != nil {
		return nil, span{}, badRequest("The start of the period must be a time such as 2021-10-24T00:00:00Z.")
	}
	p, ok := spanAt(s.Source.scheme(), at)
	if !ok {
		return nil, span{}, badRequest("There are no periods before 1970 or after 9999.")
	}
	return s, p, nil
}
