package serialpage_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialpage"
)

func ExampleNewHandler() {
	server, err := miniredis.Run() // in an application, a Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC))
	if err != nil {
		panic(err)
	}
	n, err := gen.NextNumber(context.Background(), "IS")
	if err != nil {
		panic(err)
	}

	page, err := serialpage.NewHandler(serialpage.Options{
		Prefix: "/numbers",
		Series: func(context.Context) ([]serialpage.Series, error) {
			return []serialpage.Series{{
				Type: "IS", Name: "Invoices", Source: serialpage.Redis(gen),
				Stored: func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
					return func(yield func(string, error) bool) { // in an application, SELECT number FROM invoices
						yield(n.String(), nil)
					}
				},
				Link: func(number string) string { return "../invoices/" + number },
			}}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/numbers/", page)

	look := func(path string) *httptest.ResponseRecorder { // in an application, a browser
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, httptest.NewRequest("GET", "/numbers/"+path, nil))
		return recorder
	}
	recorder := look("find?number=" + n.String())
	fmt.Println(recorder.Code)
	recorder = look(recorder.Header().Get("Location"))
	fmt.Println(recorder.Code, strings.Contains(recorder.Body.String(), "was issued and is stored."),
		strings.Contains(recorder.Body.String(), "All numbers are accounted for."))
	// Output:
	// 303
	// 200 true true
}
