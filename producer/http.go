package producer

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	jsonType = "application/json"
	// maxCallback is far above a call about 500 messages with the longest ids, which is about 70 KiB.
	maxCallback = 1 << 20
)

// HTTPHandler serves this producer's Confirm and DeleteBusiness by HTTP, as POST /confirm and POST /deleteBusiness, for
// a service that has no gRPC server. CallbackTarget is then the URL at which the handler is mounted:
//
//	mux.Handle("/msghandler/", http.StripPrefix("/msghandler", p.HTTPHandler())) // http://orders.svc:8080/msghandler
//
// Config.Coordinators holds for both ways. The handler bounds the size of a request; the server must bound the time in
// which a request arrives (http.Server.ReadTimeout).
func (p *Producer) HTTPHandler() http.Handler {
	c := p.serve()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /confirm", p.answer(func(ctx context.Context, call callbackCall) (any, error) {
		response, err := c.Confirm(ctx, &pb.ConfirmRequest{
			Producer: call.Producer, Ids: call.IDs, Final: call.Final, MarkerStore: call.MarkerStore,
		})
		return confirmed(response), err
	}))
	mux.HandleFunc("POST /deleteBusiness", p.answer(func(ctx context.Context, call callbackCall) (any, error) {
		_, err := c.DeleteBusiness(ctx, &pb.DeleteBusinessRequest{
			Producer: call.Producer, Ids: call.IDs, MarkerStore: call.MarkerStore,
		})
		return struct{}{}, err
	}))
	return mux
}

// callbackCall is the body of both calls.
type callbackCall struct {
	Producer    string   `json:"producer"`
	IDs         []string `json:"ids"`
	Final       bool     `json:"final"`
	MarkerStore string   `json:"markerStore"`
}

type confirmation struct {
	ID      string `json:"id"`
	Verdict string `json:"verdict"`
}

// confirmed is the answer to a Confirm as JSON.
func confirmed(response *pb.ConfirmResponse) any {
	all := make([]confirmation, 0, len(response.GetConfirmations()))
	for _, c := range response.GetConfirmations() {
		all = append(all, confirmation{c.GetId(), c.GetVerdict().String()})
	}
	return map[string]any{"confirmations": all, "markerStore": response.GetMarkerStore()}
}

// answer makes a handler of a call. A caller that is not let in learns so before the body is read.
func (p *Producer) answer(call func(context.Context, callbackCall) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := callContext(r)
		defer cancel()
		err := p.admit(ctx)
		var asked callbackCall
		if err == nil {
			asked, err = readCallback(w, r)
		}
		var answer any
		if err == nil {
			answer, err = call(ctx, asked)
		}
		if err != nil {
			http.Error(w, status.Convert(err).Message(), statusOf(err))
			return
		}
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(answer) // fails only when the caller has gone
	}
}

// callContext gives a call by HTTP what a call by gRPC has: its deadline, its token, and who calls.
func callContext(r *http.Request) (context.Context, context.CancelFunc) {
	from := &peer.Peer{}
	if addr, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from.Addr = net.TCPAddrFromAddrPort(addr)
	}
	if r.TLS != nil {
		from.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	ctx := peer.NewContext(r.Context(), from)
	ctx = metadata.NewIncomingContext(ctx, metadata.MD{"authorization": r.Header.Values("Authorization")})
	if ms, err := strconv.ParseUint(r.Header.Get("Connect-Timeout-Ms"), 10, 31); err == nil {
		return context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
	}
	return context.WithCancel(ctx)
}

// readCallback reads the body of a call.
func readCallback(w http.ResponseWriter, r *http.Request) (asked callbackCall, err error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != jsonType {
		return asked, status.Error(codes.Unimplemented, "the content type is not application/json")
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCallback)).Decode(&asked); err != nil {
		return asked, status.Error(codes.InvalidArgument, fmt.Sprintf("the body is not the JSON of a callback: %s", err))
	}
	return asked, nil
}

// statusOf is the HTTP status of an error of a callback. Coordinators know these statuses.
func statusOf(err error) int {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.FailedPrecondition: // another producer is meant
		return http.StatusConflict
	case codes.Unimplemented:
		return http.StatusUnsupportedMediaType
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
