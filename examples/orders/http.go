package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"

	"github.com/msghandler/msghandler/examples/answers"
)

// handler serves the orders until stopping ends; then the service is not ready any more.
func (s *service) handler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.post)
	mux.HandleFunc("GET /orders/{id}", s.get)
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		// Not the coordinator: without it all replicas would be unready, and clients would get no answer at all.
		if err := errors.Join(stopping.Err(), s.db.PingContext(r.Context())); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}

// validKey is what the id of a message may be.
var validKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$`)

// validItem is an item that fits its column, in every database and character set.
var validItem = regexp.MustCompile(`^[ -~]{1,64}$`)

func (o order) valid() bool {
	return validKey.MatchString(o.ID) && validItem.MatchString(o.Item) && o.Quantity > 0 && o.Quantity <= 100
}

// post takes an order. Its id is the client's Idempotency-Key: a client without an answer repeats the request.
func (s *service) post(w http.ResponseWriter, r *http.Request) {
	var o order
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&o)
	o.ID = r.Header.Get("Idempotency-Key")
	if err != nil || !o.valid() {
		reply(w, o.ID, errors.Join(errBadOrder, err))
		return
	}
	// The order goes on when its client hangs up: the client cannot know, and repeats the request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTimeout)
	defer cancel()
	reply(w, o.ID, s.place(ctx, o))
}

// get shows an order. A client that got no answer may ask here, too; 404 may still become an order.
func (s *service) get(w http.ResponseWriter, r *http.Request) {
	o, err := s.look(r.Context(), r.PathValue("id"))
	if err != nil {
		reply(w, r.PathValue("id"), err)
		return
	}
	write(w, http.StatusOK, o)
}

var errBadOrder = errors.New(
	`an order has a header Idempotency-Key and a body such as {"item": "book", "quantity": 1}, with at most 100`)

// answer is for the errors of the business, and otherwise for those of the SDK.
func answer(err error) answers.Answer {
	for _, own := range []struct {
		err    error
		status int
		text   string
	}{
		{errBadOrder, http.StatusBadRequest, errBadOrder.Error()},
		{errNoOrder, http.StatusNotFound, "no such order"},
		{errOther, http.StatusUnprocessableEntity, "another order has this key; use a key once"},
		{errSoldOut, http.StatusConflict, "sold out; order something else with a new key"},
	} {
		if errors.Is(err, own.err) {
			return answers.Answer{Status: own.status, Text: own.text}
		}
	}
	return answers.Of(err)
}

// reply answers a request, and logs what an operator may need.
func reply(w http.ResponseWriter, id string, err error) {
	a := answer(err)
	level := slog.LevelInfo
	switch {
	case a.Alert:
		level = slog.LevelError
	case a.Status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	}
	log := slog.With("order", id, "http_status", a.Status)
	if err != nil {
		log = log.With("cause", err)
	}
	log.Log(context.Background(), level, "request answered: "+a.Text)
	if a.Done() {
		w.Header().Set("Location", "/orders/"+id)
	}
	if a.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.RetryAfter.Seconds())))
	}
	write(w, a.Status, map[string]string{"id": id, "text": a.Text})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that left repeats the request
}
