// Package page mounts the pages of serialpage in the routers that docs/page.md lists.
package page

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"
)

func withNetHTTP(page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/numbers", page)
	mux.Handle("/numbers/", page)
	return mux
}

func withChi(page http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Handle("/numbers", page)
	router.Handle("/numbers/*", page)
	return router
}

func withGin(page http.Handler) http.Handler {
	router := gin.New()
	router.Any("/numbers", gin.WrapH(page))
	router.Any("/numbers/*path", gin.WrapH(page))
	return router
}

func withEcho(page http.Handler) http.Handler {
	router := echo.New()
	router.Any("/numbers", echo.WrapHandler(page))
	router.Any("/numbers/*", echo.WrapHandler(page))
	return router
}
