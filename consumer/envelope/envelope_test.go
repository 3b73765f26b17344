package envelope_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer/envelope"
)

type paid struct {
	Cents int64 `json:"cents"`
}

var event = envelope.Event[paid]{
	ID: "1001", Type: "order.paid", AggregateType: "order", AggregateID: "o-7",
	TraceID:    "4bf92f3577b34da6a3ce929d0e0e4736",
	OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Payload: paid{1999},
}

func TestBothFormsHoldTheSameEvent(t *testing.T) {
	t.Parallel()
	for kind, row := range map[string]struct {
		marshal func(envelope.Event[paid]) ([]byte, error)
		want    string
	}{
		envelope.ContentType: {
			envelope.Marshal[paid],
			`{"eventId":"1001","eventType":"order.paid","aggregateType":"order","aggregateId":"o-7",` +
				`"occurredAt":"2026-01-02T03:04:05Z","traceId":"4bf92f3577b34da6a3ce929d0e0e4736","payload":{"cents":1999}}`,
		},
		envelope.CloudEventContentType: {
			envelope.MarshalCloudEvent[paid],
			`{"specversion":"1.0","id":"1001","type":"order.paid",` +
				`"source":"order","subject":"o-7","time":"2026-01-02T03:04:05Z","traceid":"4bf92f3577b34da6a3ce929d0e0e4736",` +
				`"datacontenttype":"application/json","data":{"cents":1999}}`,
		},
	} {
		body, err := row.marshal(event)
		if err != nil || string(body) != row.want {
			t.Errorf("%s: %s, %v", kind, body, err)
		}
		for _, contentType := range []string{kind, kind + "; charset=utf-8"} {
			if got, err := envelope.Unmarshal[paid]("1001", contentType, body); err != nil || got != event {
				t.Errorf("%s: read %+v, %v", contentType, got, err)
			}
		}
		if got := envelope.TypeOf(kind, body); got != "order.paid" {
			t.Errorf("%s: type %q", kind, got)
		}
	}
}

func TestMalformedEventIsInvalid(t *testing.T) {
	t.Parallel()
	for body, kind := range map[string]string{
		`not JSON`: "", `{}`: "", `{"eventId":"1001"}`: "", `{"eventType":"order.paid"}`: "",
		`{"eventId":"1002","eventType":"order.paid","payload":{"cents":1}}`:          "another id",
		`{"eventId":"1001","eventType":"order.paid"}`:                                "missing data",
		`{"eventId":"1001","eventType":"order.paid","payload":{"cents":"a lot"}}`:    "nonsense data",
		`{"eventId":"1001","eventType":"order.paid","occurredAt":"yesterday"}`:       "nonsense time",
		`{"specversion":"0.3","id":"1001","type":"order.paid","source":"order"}`:     envelope.CloudEventContentType,
		`{"specversion":"1.0","id":"1001","type":"a","source":"b","data":"a lot"}`:   envelope.CloudEventContentType,
		`{"specversion":"1.0","id":"1001","type":"a","source":"b"}`:                  envelope.CloudEventContentType,
		`{"specversion":"1.0","id":"1001","type":"a","source":"b","data_base64":""}`: envelope.CloudEventContentType,
	} {
		if _, err := envelope.Unmarshal[paid]("1001", kind, []byte(body)); !errors.Is(err, envelope.ErrInvalid) {
			t.Errorf("%s: %v", body, err)
		}
	}
	if envelope.TypeOf("", []byte("{")) != "" {
		t.Error("nonsense has a type")
	}
	// A caller that wants no payload needs no payload.
	const bareCloudEvent = `{"specversion":"1.0","id":"1001","type":"order.closed","source":"order"}`
	e, err := envelope.Unmarshal[struct{}]("1001", envelope.CloudEventContentType, []byte(bareCloudEvent))
	if err != nil || e.Type != "order.closed" ||
		envelope.TypeOf(envelope.CloudEventContentType, []byte(bareCloudEvent)) != e.Type {
		t.Errorf("%+v, %v", e, err)
	}
	bare := envelope.Event[paid]{ID: "1001", Type: "order.paid"}
	if _, err := envelope.MarshalCloudEvent(bare); err == nil || !strings.Contains(err.Error(), "AggregateType") {
		t.Errorf("without a source: %v", err)
	}
	if _, err := envelope.Marshal(envelope.Event[paid]{ID: "1001"}); !errors.Is(err, envelope.ErrInvalid) {
		t.Errorf("without a type: %v", err)
	}
}

// own is a type whose decoder accepts null.
type own struct{ none bool }

func (o *own) UnmarshalJSON(text []byte) error {
	o.none = string(text) == "null"
	return nil
}

func TestNullIsNoValuePayload(t *testing.T) {
	t.Parallel()
	for kind, body := range map[string]string{
		envelope.ContentType: `{"eventId":"1001","eventType":"order.paid","payload": null }`,
		envelope.CloudEventContentType: `{"specversion":"1.0","id":"1001","type":"order.paid","source":"order",` +
			`"data": null }`,
	} {
		refused := map[string]error{}
		_, refused["a struct"] = envelope.Unmarshal[paid]("1001", kind, []byte(body))
		_, refused["a pointer"] = envelope.Unmarshal[*paid]("1001", kind, []byte(body))
		_, refused["a number"] = envelope.Unmarshal[int]("1001", kind, []byte(body))
		_, refused["a text"] = envelope.Unmarshal[string]("1001", kind, []byte(body))
		for what, err := range refused {
			if !errors.Is(err, envelope.ErrInvalid) || !strings.Contains(err.Error(), "null") {
				t.Errorf("%s, where %s is wanted: %v", kind, what, err)
			}
		}
		taken := map[string]error{}
		_, taken["a list"] = envelope.Unmarshal[[]paid]("1001", kind, []byte(body))
		_, taken["a map"] = envelope.Unmarshal[map[string]int]("1001", kind, []byte(body))
		_, taken["anything"] = envelope.Unmarshal[any]("1001", kind, []byte(body))
		_, taken["nothing"] = envelope.Unmarshal[struct{}]("1001", kind, []byte(body))
		for what, err := range taken {
			if err != nil {
				t.Errorf("%s, where %s is wanted: %v", kind, what, err)
			}
		}
		if e, err := envelope.Unmarshal[own]("1001", kind, []byte(body)); err != nil || !e.Payload.none {
			t.Errorf("%s, where a type reads itself: %+v, %v", kind, e, err)
		}
	}
	for _, body := range []string{`null`, `[null]`, `{"eventId":null,"eventType":null,"payload":{"cents":1}}`} {
		if _, err := envelope.Unmarshal[paid]("1001", "", []byte(body)); !errors.Is(err, envelope.ErrInvalid) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestUnreadableEventIsNotWritten(t *testing.T) {
	t.Parallel()
	nothing := envelope.Event[*paid]{ID: "1001", Type: "order.paid", AggregateType: "order"}
	if body, err := envelope.Marshal(nothing); !errors.Is(err, envelope.ErrInvalid) {
		t.Errorf("%s, %v", body, err)
	}
	if body, err := envelope.MarshalCloudEvent(nothing); !errors.Is(err, envelope.ErrInvalid) {
		t.Errorf("%s, %v", body, err)
	}
	for _, marshal := range []func(envelope.Event[[]paid]) ([]byte, error){
		envelope.Marshal[[]paid], envelope.MarshalCloudEvent[[]paid],
	} {
		if _, err := marshal(envelope.Event[[]paid]{ID: "1001", Type: "order.paid", AggregateType: "order"}); err != nil {
			t.Errorf("an empty list: %v", err)
		}
	}
}
