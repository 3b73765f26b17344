package event_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/ground/event"
)

func TestEventIsReadFromItsEnvelope(t *testing.T) {
	paid := event.Event{Type: "order.paid", AggregateType: "order", AggregateID: "1001"}
	for name, test := range map[string]struct {
		contentType, body string
		want              event.Event
	}{
		"envelope": {
			"application/json", `{"eventType":"order.paid","aggregateType":"order","aggregateId":"1001","payload":[1]}`,
			paid,
		},
		"charset": {
			"application/json; charset=utf-8", `{"eventType":"order.paid","aggregateType":"order","aggregateId":"1001"}`, paid,
		},
		"number": {"application/json", `{"aggregateId":1001,"eventType":"order.paid","aggregateType":"order"}`, paid},
		"cloud event": {
			"application/cloudevents+json", `{"specversion":"1.0","type":"order.paid","source":"order","subject":"1001"}`, paid,
		},
		"other fields": {"application/json", `{"eventType":{"a":1},"aggregateType":true,"aggregateId":null}`, event.Event{}},
		"list":         {"application/json", `[1,2]`, event.Event{}},
		"no JSON":      {"application/json", "\xff\xfe", event.Event{}},
		"another type": {"text/plain", `{"eventType":"order.paid"}`, event.Event{}},
		"no type":      {"", `{"eventType":"order.paid"}`, event.Event{}},
	} {
		if got := event.Of(test.contentType, []byte(test.body)); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestColumnHoldsWhatEveryDatabaseTakes(t *testing.T) {
	for _, name := range []string{"order.paid", "größe", strings.Repeat("x", 255)} {
		if event.Column(name) != name {
			t.Errorf("%q is left out", name)
		}
	}
	for _, name := range []string{"", "a\x00", "gr\xf6", strings.Repeat("x", 256)} {
		if got := event.Column(name); got != nil {
			t.Errorf("%q is kept as %q", name, got)
		}
	}
}
