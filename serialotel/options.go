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
	// maxTypes keeps serial.call.duration below the 2,000 attribute sets that the SDK allows for an instrument. This
	// instrument has the most sets: about ten for each type of WithTypes, and ten for all other types together.
	maxTypes = 100

	otherType = "_OTHER" // value that the semantic conventions use for all values that are not in a list
)

// An Option configures [Hooks]. If an option is passed more than once, the last one counts.
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

// WithMeterProvider sets the provider for metrics, which must not be nil. To record only spans, pass the provider of
// go.opentelemetry.io/otel/metric/noop.
//
// The default is the result of [otel.GetMeterProvider], which also works if the global provider is set later.
func WithMeterProvider(p metric.MeterProvider) Option {
	return optionFunc(func(c *config) error {
		if isNil(p) {
			return errors.New("serialotel: WithMeterProvider: the provider is nil")
		}
		c.meters = p
		return nil
	})
}

// WithTracerProvider sets the provider for spans, which must not be nil. To record only metrics, pass the provider of
// go.opentelemetry.io/otel/trace/noop. Events are still added to the caller's span.
//
// The default is the result of [otel.GetTracerProvider], which also works if the global provider is set later.
func WithTracerProvider(p trace.TracerProvider) Option {
	return optionFunc(func(c *config) error {
		if isNil(p) {
			return errors.New("serialotel: WithTracerProvider: the provider is nil")
		}
		c.tracers = p
		return nil
	})
}

// WithTypes adds the attribute serial.type to the metrics. Its values are the given business types. All other types,
// including invalid ones, have the value _OTHER. Each type may add ten time series to serial.call.duration, three to
// serial.counter.lost, seven in total to the metrics with serial.reason, and one to each other metric.
//
// There must be 1 to 100 types. They must be valid in package serial, and must not be _OTHER. If a type is invalid, the
// error matches [serial.ErrInvalidType]. By default, metrics do not have the attribute.
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

// checkTypes returns an error if a Generator would reject one of the types. Such a type is probably misspelled, and
// would never occur. Only package serial can check a type. Therefore checkTypes requests 0 numbers of it, which always
// fails without using Redis. The type is checked first, so the error shows whether it is valid.
func checkTypes(types []string) error {
	gen, err := serial.New(noRedis{})
	if err != nil {
		return err
	}
	var errs []error
	for _, typ := range types {
		if typ == otherType {
			errs = append(errs, fmt.Errorf("serialotel: WithTypes: type %q is reserved for all types that are not listed", typ))
		}
		if _, err := gen.NextN(context.Background(), typ, 0); errors.Is(err, serial.ErrInvalidType) {
			errs = append(errs, fmt.Errorf("serialotel: WithTypes: %w", err))
		}
	}
	return errors.Join(errs...)
}

// isNil reports whether a provider is nil or a nil pointer. A caller can get a nil pointer from a constructor whose
// error it ignores.
func isNil(provider any) bool {
	v := reflect.ValueOf(provider)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
