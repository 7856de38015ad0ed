package page

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/examples/internal/exampletest"
	"github.com/dailyserial/serial/serialpage"
	"github.com/dailyserial/serial/serialtest"
)

// The guide must contain every call in routers.go.
func TestGuide(t *testing.T) {
	call := regexp.MustCompile(`(?m)^\t((?:mux|router)\.(?:Handle|Any)\(.*\))$`)
	calls := call.FindAllStringSubmatch(exampletest.ReadFile(t, "routers.go"), -1)
	require.Len(t, calls, 8)
	for _, call := range calls {
		require.Contains(t, exampletest.ReadFile(t, "../../../docs/page.md"), "`"+call[1]+"`")
	}
}

// Each router must pass all paths and methods to the pages. The pages accept forms only from a trusted origin.
func TestRouters(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	gen, _ := serialtest.New(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	none := func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
		return maps.All(map[string]error{})
	}
	series := []serialpage.Series{{Type: "IS", Source: serialpage.Redis(gen), Stored: none}}
	page, err := serialpage.NewHandler(serialpage.Options{
		Prefix:         "/numbers",
		Series:         func(context.Context) ([]serialpage.Series, error) { return series, nil },
		TrustedOrigins: []string{"https://trusted.example"},
	})
	require.NoError(t, err)
	for name, mount := range map[string]func(http.Handler) http.Handler{
		"net/http": withNetHTTP, "chi": withChi, "gin": withGin, "echo": withEcho,
	} {
		for _, row := range []struct {
			status               int
			method, path, origin string
		}{
			{http.StatusPermanentRedirect, "GET", "/numbers", ""},
			{http.StatusOK, "GET", "/numbers/style.css", ""},
			{http.StatusSeeOther, "POST", "/numbers/check", "https://trusted.example"},
			{http.StatusForbidden, "POST", "/numbers/check", "https://evil.example"},
		} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(row.method, row.path, strings.NewReader("key=IS"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", row.origin)
			mount(page).ServeHTTP(w, r)
			require.Equal(t, row.status, w.Code, "%s: %+v: %s", name, row, w.Body)
		}
	}
}
