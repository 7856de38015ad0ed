package serial_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// whatToDo sorts the errors of a call by who can end them.
func whatToDo(err error) string {
	switch {
	case err == nil:
		return "use the number"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "nothing: the caller has left, and the number may be a gap"
	case errors.Is(err, serial.ErrInvalidType), errors.Is(err, serial.ErrInvalidRequest):
		return "correct the caller"
	case errors.Is(err, serial.ErrInvalidNumber): // of Parse; serial.ErrCheckDigit, too
		return "ask for the number again"
	case errors.Is(err, serial.ErrExhausted):
		return "widen {seq} in every process"
	case errors.Is(err, serial.ErrCounterLost), errors.Is(err, serial.ErrClockSkew), errors.Is(err, serial.ErrConflict):
		return "call an operator: the error says which command ends it"
	default: // serial.ErrNotReplicated, or Redis, the floor or the ledger has failed
		return "try again"
	}
}

// What to do about each error.
func Example_errors() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	_, err = gen.Next(ctx, "IS")
	fmt.Println(whatToDo(err))
	_, err = gen.Next(ctx, "I S")
	fmt.Println(whatToDo(err))
	_, err = gen.Parse("IS2021102400l7") // with an l
	fmt.Println(whatToDo(err))
	_, err = gen.NextN(ctx, "IS", 9999) // one of them is used
	fmt.Println(whatToDo(err))
	m.FlushAll()
	_, err = gen.Next(ctx, "IS")
	fmt.Println(whatToDo(err))
	// Output:
	// use the number
	// correct the caller
	// ask for the number again
	// widen {seq} in every process
	// call an operator: the error says which command ends it
}
