package orders

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/producer"
)

// Handler takes orders over HTTP. POST /orders with an order as JSON places the order, POST /orders/ID/payment pays it,
// POST /orders/ID/cancellation cancels it, POST /orders/ID/receipt says that the buyer has the product, and GET
// /orders/ID shows the order. 200 or 201: done; 400: not an order; 404: no such order or product; 409: sold, declined,
// too early or too late; 503: try again.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.placeOverHTTP)
	for path, change := range map[string]func(ctx context.Context, id int64, r *http.Request) error{
		"POST /orders/{id}/payment": func(ctx context.Context, id int64, r *http.Request) error {
			fail := Failure(r.URL.Query().Get("fail"))
			if err := fail.check(); err != nil {
				return errors.Join(errMalformed, err)
			}
			return s.Pay(ctx, id, fail)
		},
		"POST /orders/{id}/cancellation": func(ctx context.Context, id int64, _ *http.Request) error {
			return s.Cancel(ctx, id)
		},
		"POST /orders/{id}/receipt": func(ctx context.Context, id int64, _ *http.Request) error {
			return s.Complete(ctx, id)
		},
		"GET /orders/{id}": func(context.Context, int64, *http.Request) error { return nil },
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
			if err != nil {
				err = errors.Join(errMalformed, err)
			} else {
				err = change(traced(r), id, r)
			}
			s.answer(w, r, id, err)
		})
	}
	return mux
}

// traced is the request's context with the caller's trace, which the events carry on.
func traced(r *http.Request) context.Context {
	return shop.WithTrace(r.Context(), r.Header.Get(shop.Header))
}

// errMalformed is for requests that no order can answer.
var errMalformed = errors.New("malformed request")

func (s *Service) placeOverHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	var order Order
	if err == nil {
		order, err = parse(body)
	}
	if err != nil {
		err = errors.Join(errMalformed, err)
	} else {
		err = s.Place(traced(r), order)
	}
	s.answer(w, r, order.ID, err)
}

// answer writes the order or the error.
func (s *Service) answer(w http.ResponseWriter, r *http.Request, id int64, err error) {
	var order shop.Order
	if err == nil {
		order, err = s.shop.Look(r.Context(), id)
	}
	if err != nil {
		http.Error(w, err.Error(), status(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(order) // the client left; the order is stored
}

func status(err error) int {
	for _, e := range []struct {
		err    error
		status int
	}{
		{errMalformed, http.StatusBadRequest},
		{shop.ErrNoOrder, http.StatusNotFound},
		{shop.ErrNoProduct, http.StatusNotFound},
		{shop.ErrSold, http.StatusConflict},
		{shop.ErrStatus, http.StatusConflict},
		{ErrDeclined, http.StatusConflict},
		{producer.ErrRejected, http.StatusBadRequest},
	} {
		if errors.Is(err, e.err) {
			return e.status
		}
	}
	return http.StatusServiceUnavailable
}
