package simulation

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/producer"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// httpPath is where the producer called by HTTP mounts its handler.
const httpPath = "/msghandler"

// serveHTTP serves the calls of coordinators by HTTP.
func (s *service) serveHTTP(run *serviceRun, listener net.Listener) {
	mux := http.NewServeMux()
	mux.Handle(httpPath+"/", http.StripPrefix(httpPath, s.answerHTTP(run.sdk)))
	mux.HandleFunc(liarPath, func(w http.ResponseWriter, r *http.Request) {
		in, _ := readCall(r)
		writeJSON(w, committedAll(in))
	})
	run.web = &http.Server{Handler: mux}
	s.world.goInBackground(func() { _ = run.web.Serve(listener) })
}

// answerHTTP hands calls to the SDK's handler, notes the verdicts, and lets faults change the answers.
func (s *service) answerHTTP(sdk *producer.Producer) http.Handler {
	handler := sdk.HTTPHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, body := readCall(r)
		if s.world.faulty.answerPage(w, s.called, in) {
			return
		}
		honest := httptest.NewRecorder()
		var said proto.Message
		out, err := s.answer(r.Context(), in, nil, func(ctx context.Context, _ any) (any, error) {
			again := r.WithContext(ctx)
			again.Body = io.NopCloser(bytes.NewReader(body))
			handler.ServeHTTP(honest, again)
			answer, err := readHonest(in, honest)
			if err == nil {
				said = proto.Clone(answer)
			}
			return answer, err
		})
		spoiled, _ := out.(proto.Message)
		switch {
		case err != nil && honest.Code != http.StatusOK:
			copyAnswer(w, honest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case said != nil && proto.Equal(said, spoiled):
			copyAnswer(w, honest)
		default:
			writeJSON(w, spoiled)
		}
	})
}

// readCall reads the body of a call, and what the call means.
func readCall(r *http.Request) (proto.Message, []byte) {
	body, _ := io.ReadAll(r.Body) // the SDK refuses half a body
	var in proto.Message = &pb.ConfirmRequest{}
	if r.URL.Path == "/deleteBusiness" {
		in = &pb.DeleteBusinessRequest{}
	}
	_ = protojson.Unmarshal(body, in)
	return in, body
}

// readHonest reads the answer of the SDK to a call.
func readHonest(in proto.Message, answer *httptest.ResponseRecorder) (proto.Message, error) {
	if answer.Code != http.StatusOK {
		return nil, status.Error(codes.Unknown, answer.Body.String())
	}
	if _, is := in.(*pb.DeleteBusinessRequest); is {
		return &pb.DeleteBusinessResponse{}, nil
	}
	out := &pb.ConfirmResponse{}
	return out, protojson.Unmarshal(answer.Body.Bytes(), out)
}

func copyAnswer(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // fails when the caller has gone
}

func writeJSON(w http.ResponseWriter, answer proto.Message) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(jsonOf(answer)) // fails when the caller has gone
}

// jsonOf is an answer as JSON, in which a number that is no verdict stays a number.
func jsonOf(answer proto.Message) []byte {
	if answer == nil {
		return []byte("{}")
	}
	text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(answer)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}
