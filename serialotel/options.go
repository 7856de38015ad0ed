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
	// maxTypes keeps the largest instrument, serial.call.duration, within the 2,000 attribute sets that the SDK keeps of an
	// instrument: a hundred types and the rest, each with ten outcomes.
	maxTypes = 100

	otherType = "_OTHER" // what the semantic conventions call all that is not on a list
)

// An Option configures [Hooks]. Of the same option given twice the last one counts.
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

// WithMeterProvider sets where metrics go. For spans alone, give it the one of go.opentelemetry.io/otel/metric/noop.
//
// Default [otel.GetMeterProvider]; one that is set globally later is followed. nil is refused.
func WithMeterProvider(p metric.MeterProvider) Option {
	return optionFunc(func(c *config) error {
		if isNil(p) {
			return errors.New("serialotel: WithMeterProvider: the provider is nil")
		}
		c.meters = p
		return nil
	})
}

// WithTracerProvider sets where spans go. For metrics alone, give it the one of go.opentelemetry.io/otel/trace/noop; the
// events are then still those of the caller's span, wherever it goes.
//
// Default [otel.GetTracerProvider]; one that is set globally later is followed. nil is refused.
func WithTracerProvider(p trace.TracerProvider) Option {
	return optionFunc(func(c *config) error {
		if isNil(p) {
			return errors.New("serialotel: WithTracerProvider: the provider is nil")
		}
		c.tracers = p
		return nil
	})
}

// WithTypes has metrics tell these business types apart, by an attribute serial.type; all others, invalid ones too, share
// the value _OTHER. Each type may add ten time series to serial.call.duration and one to most others.
//
// Default none: no metric has the attribute. Allowed are 1 to 100 types, each as package serial allows them, and not
// _OTHER itself. Anything else is refused; the error of a type matches [serial.ErrInvalidType].
func WithTypes(types ...string) Option {
	types = slices.Clone(types) // the caller may go on to change its slice
	return optionFunc(func(c *config) error {
		if n := len(types); n < 1 || n > maxTypes {
			return fmt.Errorf("serialotel: WithTypes of %d types: allowed are 1 to %d", n, maxTypes)
		}
		c.types = types
		return checkTypes(types)
	})
}

// noRedis is the client of a Generator that sends nothing.
type noRedis struct{ redis.UniversalClient }

// checkTypes refuses types that a Generator refuses: they are typing errors, which would never match. The rule is package
// serial's, so a Generator is asked for a batch of no numbers. That is refused without Redis, an invalid type first.
func checkTypes(types []string) error {
	gen, err := serial.New(noRedis{})
	if err != nil {
		return err
	}
	var errs []error
	for _, typ := range types {
		if typ == otherType {
			errs = append(errs, fmt.Errorf("serialotel: WithTypes: type %q: it stands for all types that are not named", typ))
		}
		if _, err := gen.NextN(context.Background(), typ, 0); errors.Is(err, serial.ErrInvalidType) {
			errs = append(errs, fmt.Errorf("serialotel: WithTypes: %w", err))
		}
	}
	return errors.Join(errs...)
}

// isNil reports also a nil pointer in an interface, as a constructor leaves behind whose error was not looked at.
func isNil(provider any) bool {
	v := reflect.ValueOf(provider)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
