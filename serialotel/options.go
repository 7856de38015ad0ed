package serialotel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/dailyserial/serial"
)

const (
	// maxTypes limits the largest instrument, serial.call.duration, to fewer than the 2,000 attribute sets that the SDK
	// keeps for an instrument: a hundred types and one for the rest, with ten outcomes each.
	maxTypes = 100

	otherType = "_OTHER" // the semantic conventions' name for everything not on a list
)

// An Option configures [Hooks]. If an option is given twice, the last one counts.
type Option interface {
	apply(*config) error
}

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	types   []string
}

func newConfig(opts []Option) (*config, error) {
	c := &config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	var errs []error
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("serialotel: option %d of Hooks is nil", i+1))
			continue
		}
		errs = append(errs, o.apply(c))
	}
	return c, errors.Join(errs...)
}

// WithMeterProvider sets the provider for metrics. To record spans only, pass the provider of
// go.opentelemetry.io/otel/metric/noop.
//
// Default [otel.GetMeterProvider], also if the global provider is set later. nil is refused.
func WithMeterProvider(p metric.MeterProvider) Option {
	return optionFunc(func(c *config) error {
		if isNil(p) {
			return errors.New("serialotel: WithMeterProvider: the provider is nil")
		}
		c.meters = p
		return nil
	})
}

// WithTracerProvider sets the provider for spans. To record metrics only, pass the provider of
// go.opentelemetry.io/otel/trace/noop; events are still added to the caller's span.
//
// Default [otel.GetTracerProvider], also if the global provider is set later. nil is refused.
func WithTracerProvider(p trace.TracerProvider) Option {
	return optionFunc(func(c *config) error {
		if isNil(p) {
			return errors.New("serialotel: WithTracerProvider: the provider is nil")
		}
		c.tracers = p
		return nil
	})
}

// WithTypes adds an attribute serial.type to metrics that distinguishes these business types. All other types,
// including invalid ones, share the value _OTHER. Each type may add ten time series to serial.call.duration, three to
// serial.counter.lost, seven to the metrics by reason, and one to each of the others.
//
// By default, no metric has the attribute. There must be 1 to 100 types that package serial accepts, and none may be
// _OTHER. Anything else is refused; the error for a type matches [serial.ErrInvalidType].
func WithTypes(types ...string) Option {
	types = slices.Clone(types) // the caller may change its slice later
	return optionFunc(func(c *config) error {
		if n := len(types); n < 1 || n > maxTypes {
			return fmt.Errorf("serialotel: WithTypes of %d types: want 1 to %d", n, maxTypes)
		}
		c.types = types
		return checkTypes(types)
	})
}

// noRedis is the client of a Generator that sends nothing.
type noRedis struct{ redis.UniversalClient }

// checkTypes refuses types that a Generator refuses: they are typing errors, which would never match. Package serial
// has the rule, so checkTypes asks a Generator for 0 numbers of each type. That fails without using Redis, and an
// invalid type fails first.
func checkTypes(types []string) error {
	gen, err := serial.New(noRedis{})
	if err != nil {
		return err
	}
	var errs []error
	for _, typ := range types {
		if typ == otherType {
			errs = append(errs, fmt.Errorf("serialotel: WithTypes: type %q: it means all types that are not named", typ))
		}
		if _, err := gen.NextN(context.Background(), typ, 0); errors.Is(err, serial.ErrInvalidType) {
			errs = append(errs, fmt.Errorf("serialotel: WithTypes: %w", err))
		}
	}
	return errors.Join(errs...)
}

// isNil also detects a nil pointer in an interface, which a constructor may return with an error that the caller
// ignored.
func isNil(provider any) bool {
	v := reflect.ValueOf(provider)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
