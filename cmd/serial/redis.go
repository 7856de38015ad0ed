package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// connect returns the client that the command needs. It does not send anything yet.
func (s *settings) connect() (redis.UniversalClient, error) {
	if s.url == "" {
		return embedded(), nil
	}
	client, err := dial(s.url)
	if err != nil {
		return nil, fmt.Errorf("the Redis URL: %w", err)
	}
	return client, nil
}

// embedded returns a client of a Redis in this process's memory. That Redis starts with the first command and does not
// listen on the network.
func embedded() redis.UniversalClient {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // expire keys by the clock
	return redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:0", // never dialled; a host name would be looked up
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
}

// dial returns the client that a URL describes. Its errors never show a password or a part of it.
func dial(address string) (client redis.UniversalClient, err error) {
	query, err := check(address)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil { // go-redis panics on some options that it can parse but not use
			client, err = nil, fmt.Errorf("invalid option: %v", p)
		}
		if err != nil && query.Has("password") { // after an & in it, the error would show the rest as an option
			err = errors.New("unknown option or wrong value; in a password, write & as %26")
		}
	}()
	switch {
	case query.Get("master_name") != "":
		o, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, err
		}
		if o.DialerRetries == 0 { // by default, go-redis's five attempts use up the time of a call, and hide the cause
			o.DialerRetries = 1
		}
		return redis.NewFailoverClient(o), nil
	case query.Has("addr"):
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, err
		}
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// check refuses a URL that may have been split by a special character in the password. Part of the password would be
// taken for the port, the path or an option, and errors could show it.
func check(address string) (url.Values, error) {
	const encode = "percent-encode special characters: %2F for /, %3F for ?, %23 for #, %40 for @, %25 for %"
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" || strings.Contains(address, "#") {
		return nil, errors.New("want redis://USER:PASSWORD@HOST:PORT/DB; " + encode)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("invalid query; " + encode)
	}
	socket := u.Scheme == "unix" && u.Host == "" // its path may contain an @, but no part of a password
	if strings.Contains(u.RawQuery, "@") || !socket && strings.Contains(u.EscapedPath(), "@") {
		return nil, errors.New("got an @ after the host; " + encode)
	}
	return query, nil
}
