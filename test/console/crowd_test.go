package console

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

var crowd = flag.Int("crowd", 2500, "how many messages are pending and how many are dead where pages are timed")

// TestCrowdIsGrouped has more messages than groups read, and logs how long the pages take: make crowd has a million.
func TestCrowdIsGrouped(t *testing.T) {
	r := start(t, patient)
	r.fill(*crowd)
	answer, err := r.admin.GroupMessages(t.Context(), &adminv1.GroupMessagesRequest{
		Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD},
	})
	if err != nil || answer.GetTotalSize() != int64(*crowd) || answer.GetSampleSize() >= answer.GetTotalSize() {
		t.Fatalf("looked at %d of %d: %v", answer.GetSampleSize(), answer.GetTotalSize(), err)
	}
	largest, n := answer.GetGroups()[0], float64(*crowd)
	const of = "312 NO_ROUTE for o-"
	if g := float64(largest.GetCount()); g < .6*n || g > .8*n || !strings.HasPrefix(largest.GetCause(), of) {
		t.Errorf("the group of 7 in 10 is %v", largest)
	}
	for _, path := range []string{
		"/", "/messages?state=dead", "/messages?state=pending", "/change?action=retry&all=1&state=dead",
	} {
		r.timed(path)
	}
}

// fill stores n pending and n dead messages, of which seven in ten have one cause.
func (r *coordinator) fill(n int) {
	r.Helper()
	store, err := redisstore.New(r.Context(), redisstore.Config{
		URL: r.redis, Prefix: "msghandler", Retention: time.Minute,
	})
	if err != nil {
		r.Fatal(err)
	}
	defer store.Close()
	all := func(producer string) (messages []halfmsg.Message) {
		for i := range n {
			messages = append(messages, halfmsg.Message{
				Name: halfmsg.Name{Producer: producer, ID: fmt.Sprintf("o-%07d", i)}, Exchange: "shop", RoutingKey: "paid",
				Body: []byte(`{"order":1}`), ConfirmAfter: time.Hour, Delay: time.Hour, CallbackTarget: r.address,
			})
		}
		return messages
	}
	for part := range slices.Chunk(all("waiting"), 1000) {
		r.stored(store.Create(r.Context(), part))
	}
	for part := range slices.Chunk(all("failing"), 1000) {
		for i := range part {
			part[i].Delay = 0
		}
		r.stored(store.Create(r.Context(), part))
		r.kill(store, part)
	}
}

// kill lets the broker refuse messages for the last time.
func (r *coordinator) kill(store *redisstore.Store, part []halfmsg.Message) {
	r.Helper()
	names := make([]halfmsg.Name, len(part))
	for i := range part {
		names[i] = part[i].Name
	}
	settlements := make([]halfmsg.Settlement, 0, len(part))
	for i, submitted := range store.SubmitTrusted(context.WithoutCancel(r.Context()), names, time.Minute) {
		cause := "312 NO_ROUTE for " + names[i].ID
		if i%10 >= 7 {
			cause = fmt.Sprintf("Exception (404) Reason: \"NOT_FOUND - no exchange %c\"", 'a'+i%3)
		}
		settlements = append(settlements, halfmsg.Settlement{
			Name: names[i], Token: submitted.Claim.Token, Event: halfmsg.EventExhausted, Cause: cause,
		})
	}
	r.stored(store.Settle(r.Context(), settlements))
}

func (r *coordinator) stored(results []halfmsg.Result) {
	r.Helper()
	for _, result := range results {
		if result.Err != nil {
			r.Fatal(result.Err)
		}
	}
}

// timed logs how long a page takes, at most and at the median of three.
func (r *coordinator) timed(path string) {
	r.Helper()
	var took []time.Duration
	for range 3 {
		begun := time.Now()
		answer, err := http.Get("http://" + r.HTTPAddr() + path)
		if err != nil {
			r.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			r.Errorf("%s answers %d: %v", path, answer.StatusCode, err)
		}
		answer.Body.Close()
		took = append(took, time.Since(begun).Round(time.Millisecond))
	}
	slices.Sort(took)
	r.Logf("%s takes %v, at most %v", path, took[len(took)/2], took[len(took)-1])
}
