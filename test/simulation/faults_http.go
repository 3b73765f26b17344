package simulation

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/proto"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// httpFaults are faults of answers by HTTP: a proxy between a producer and a coordinator may answer in the place of
// the producer.
var httpFaults = []fault{
	{name: "HTTP pages", chance: 40, start: answerByPages, excuse: excuse{web: true}},
}

// liarPath is where a redirect leads to.
const liarPath = "/elsewhere/"

// pageFault answers a call by HTTP in the place of the producer, or not.
type pageFault func(w http.ResponseWriter, producer string, in proto.Message) (answered bool)

// answerPage lets a call by HTTP be answered by something else than the producer.
func (f *faulty) answerPage(w http.ResponseWriter, producer string, in proto.Message) (answered bool) {
	f.mu.Lock()
	pages := f.pages
	f.mu.Unlock()
	for _, answer := range pages {
		if answer(w, producer, in) {
			return true
		}
	}
	return false
}

// answerByPages answers some calls with something that is no answer by the contract, and yet says COMMITTED about each
// message. A coordinator that believes one of them delivers a message without a commit.
func answerByPages(ctx context.Context, w *World, d draws) {
	percent := 5 + d.intn("percent", 60)
	w.faulty.mu.Lock()
	defer w.faulty.mu.Unlock()
	w.faulty.pages = append(w.faulty.pages, func(w http.ResponseWriter, producer string, in proto.Message) bool {
		if ctx.Err() != nil || d.intn(producer, 100) >= percent {
			return false
		}
		page := pages[d.intn("page", len(pages))]
		if !d.strikes(producer) {
			return false
		}
		page(w, string(jsonOf(committedAll(in))))
		return true
	})
}

// committedAll says COMMITTED about all messages of a call.
func committedAll(in proto.Message) *pb.ConfirmResponse {
	r := &pb.ConfirmResponse{}
	asked, _ := in.(interface{ GetIds() []string })
	for _, id := range asked.GetIds() {
		r.Confirmations = append(r.Confirmations, &pb.Confirmation{Id: id, Verdict: pb.Verdict_VERDICT_COMMITTED})
	}
	return r
}

// pages are answers that are none. lie is the JSON that says COMMITTED.
var pages = []func(w http.ResponseWriter, lie string){
	func(w http.ResponseWriter, _ string) { // a redirect to a server that says COMMITTED
		w.Header().Set("Location", liarPath+"confirm")
		w.WriteHeader(http.StatusTemporaryRedirect)
	},
	func(w http.ResponseWriter, lie string) { // half an answer, whose connection breaks
		w.Header().Set("Content-Length", fmt.Sprint(len(lie)))
		writePage(w, http.StatusOK, "application/json", lie[:len(lie)/2])
	},
	func(w http.ResponseWriter, lie string) { // half an answer that is whole by its length
		writePage(w, http.StatusOK, "application/json", lie[:len(lie)/2])
	},
	func(w http.ResponseWriter, lie string) { writePage(w, http.StatusOK, "text/html", lie) },
	func(w http.ResponseWriter, lie string) { writePage(w, http.StatusAccepted, "application/json", lie) },
	func(w http.ResponseWriter, lie string) { writePage(w, http.StatusBadGateway, "application/json", lie) },
	func(w http.ResponseWriter, lie string) { writePage(w, http.StatusOK, "application/json", "["+lie+"]") },
	func(w http.ResponseWriter, lie string) { // the same field twice
		writePage(w, http.StatusOK, "application/json", `{"confirmations": [], `+lie[1:])
	},
	func(w http.ResponseWriter, lie string) {
		w.Header().Set("Content-Encoding", "gzip")
		writePage(w, http.StatusOK, "application/json", lie)
	},
}

func writePage(w http.ResponseWriter, code int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // fails when the caller has gone
}
