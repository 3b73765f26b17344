package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// ErrUnknownType is wrapped, beside ErrInvalid, by the error for an event whose type is not registered. A consumer that
// rejects the event logs the fixed text for unsupported event types.
var ErrUnknownType error = unknownTypeError{}

type unknownTypeError struct{}

func (unknownTypeError) Error() string { return "unknown event type" }

// UnsupportedType marks the error for package consumer, which this package does not import.
func (unknownTypeError) UnsupportedType() {}

// Registry holds the event types that a service knows. Producers and consumers share one registry, so that both agree
// on each type's payload and aggregate. Register all types before the first Decode.
//
//	var events envelope.Registry
//	var orderPaid = envelope.Register(&events, envelope.Spec[OrderPaid]{
//		Type: "ORDER_PAID", AggregateType: "ORDER", AggregateID: func(p OrderPaid) string { return p.OrderNo },
//	})
//
//	body, err := orderPaid.Marshal(envelope.Head{ID: m.ID, OccurredAt: now}, OrderPaid{...})   // the producer
//	event, err := events.Decode(m.ID, m.ContentType, m.Body)                                   // the consumer
//	if err != nil {
//		return consumer.Reject(err) // unknown type, missing data, or another aggregate: straight to the dead letters
//	}
//	switch payload := event.Payload.(type) {
//	case OrderPaid:
//	}
type Registry struct {
	// NumericAggregateIDs writes aggregateId as a JSON number, for receivers that keep numbers. Each id must then be a
	// whole number. Unmarshal and Decode read both forms always.
	NumericAggregateIDs bool
	types               map[string]func(messageID string, raw Event[json.RawMessage]) (Event[any], error)
}

// Spec describes an event type with payloads of type P.
type Spec[P any] struct {
	// Type is the name of the event type, such as ORDER_PAID.
	Type string
	// AggregateType is the kind of object that changes, such as ORDER.
	AggregateType string
	// AggregateID returns the id of the changed object, which the payload names too. An event with another aggregateId
	// is invalid.
	AggregateID func(P) string
	// Check returns an error for a payload without sense. Each field of a struct that is not tagged omitempty or omitzero
	// must be present without a Check. Nil: no further check.
	Check func(P) error
}

// Type is a registered event type.
type Type[P any] struct {
	registry *Registry
	spec     Spec[P]
	required []string
}

// Head is what an event says beside its type and payload.
type Head struct {
	// ID is the message's id.
	ID string
	// OccurredAt is the time of the event.
	OccurredAt time.Time
	// TraceID is the id of the trace in which the event happened.
	TraceID string
}

// Register adds an event type to a registry. Register panics if Type, AggregateType or AggregateID is missing, or if
// the type is registered already: both are mistakes of the program.
func Register[P any](r *Registry, spec Spec[P]) Type[P] {
	if spec.Type == "" || spec.AggregateType == "" || spec.AggregateID == nil {
		panic(fmt.Sprintf("envelope: event type %q lacks its Type, AggregateType or AggregateID", spec.Type))
	}
	if r.types[spec.Type] != nil {
		panic(fmt.Sprintf("envelope: event type %q is registered twice", spec.Type))
	}
	if r.types == nil {
		r.types = map[string]func(string, Event[json.RawMessage]) (Event[any], error){}
	}
	t := Type[P]{r, spec, requiredFields(reflect.TypeFor[P]())}
	r.types[spec.Type] = t.decode
	return t
}

// Name is the name of the event type.
func (t Type[P]) Name() string { return t.spec.Type }

// Event is an event of this type, with the aggregate that its payload names.
func (t Type[P]) Event(head Head, payload P) Event[P] {
	return Event[P]{
		ID: head.ID, Type: t.spec.Type, AggregateType: t.spec.AggregateType, AggregateID: t.spec.AggregateID(payload),
		OccurredAt: head.OccurredAt, TraceID: head.TraceID, Payload: payload,
	}
}

// Marshal writes an event in our own form, of ContentType. An event that Decode would refuse is an error.
func (t Type[P]) Marshal(head Head, payload P) ([]byte, error) {
	e := t.Event(head, payload)
	body, err := Marshal(e)
	if err != nil {
		return nil, err
	}
	if t.registry.NumericAggregateIDs {
		if !wholeNumber(e.AggregateID) {
			return nil, fmt.Errorf("%w: %s: aggregateId %q is no whole number", ErrInvalid, e.ID, e.AggregateID)
		}
		// The same event with the id as a number.
		body, err = json.Marshal(numbered[P]{
			e.ID, e.Type, e.AggregateType, json.Number(e.AggregateID), e.OccurredAt,
			e.TraceID, e.Payload,
		})
		if err != nil {
			return nil, fmt.Errorf("event %s: %w", e.ID, err)
		}
	}
	if _, err := t.registry.Decode(e.ID, ContentType, body); err != nil {
		return nil, err
	}
	return body, nil
}

// numbered is Event with a number as its aggregateId.
type numbered[P any] struct {
	ID            string      `json:"eventId"`
	Type          string      `json:"eventType"`
	AggregateType string      `json:"aggregateType"`
	AggregateID   json.Number `json:"aggregateId"`
	OccurredAt    time.Time   `json:"occurredAt,omitzero"`
	TraceID       string      `json:"traceId,omitempty"`
	Payload       P           `json:"payload"`
}

// Decode reads a message's event, in the form of its content type. Payload holds a value of the P of its type. Every
// error wraps ErrInvalid: another delivery cannot help. The event is refused if its type is not registered, if a
// required field of the payload is missing or null, if Check refuses the payload, or if the aggregate differs from
// the aggregate that the payload names.
func (r *Registry) Decode(messageID, contentType string, body []byte) (Event[any], error) {
	raw, err := read(messageID, contentType, body)
	if err != nil {
		return Event[any]{}, err
	}
	decode := r.types[raw.Type]
	if decode == nil {
		return Event[any]{}, fmt.Errorf("%w: %w: message %q holds event type %q", ErrInvalid, ErrUnknownType, messageID,
			raw.Type)
	}
	e, err := decode(messageID, raw)
	if err != nil {
		return Event[any]{}, fmt.Errorf("%w: %s %s: %w", ErrInvalid, raw.Type, messageID, err)
	}
	return e, nil
}

func (t Type[P]) decode(messageID string, raw Event[json.RawMessage]) (Event[any], error) {
	if err := present(t.required, raw.Payload); err != nil {
		return Event[any]{}, err
	}
	e, err := withPayload[P](raw)
	if err != nil {
		return Event[any]{}, err
	}
	if t.spec.Check != nil {
		if err := t.spec.Check(e.Payload); err != nil {
			return Event[any]{}, err
		}
	}
	if id := t.spec.AggregateID(e.Payload); e.AggregateType != t.spec.AggregateType || e.AggregateID != id {
		return Event[any]{}, fmt.Errorf("the event is about %s %q, and its payload about %s %q",
			e.AggregateType, e.AggregateID, t.spec.AggregateType, id)
	}
	return Event[any]{
		ID: e.ID, Type: e.Type, AggregateType: e.AggregateType, AggregateID: e.AggregateID,
		OccurredAt: e.OccurredAt, TraceID: e.TraceID, Payload: e.Payload,
	}, nil
}

// requiredFields are the JSON names of a struct's fields that are always written. Another type has none, and neither
// has a struct that reads itself.
func requiredFields(of reflect.Type) (names []string) {
	if of.Kind() != reflect.Struct || reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	for i := range of.NumField() {
		field := of.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && tag == "" && field.Type.Kind() == reflect.Struct: // its fields stand in this struct's place
			names = append(names, requiredFields(field.Type)...)
		case field.Anonymous && tag == "", !field.IsExported(), tag == "-" && options == "",
			strings.Contains(options, "omit"):
		case tag == "":
			names = append(names, field.Name)
		default:
			names = append(names, tag)
		}
	}
	return names
}

// present returns an error for a required field that a payload lacks. The decoder ignores the difference between a
// missing field and a zero value.
func present(required []string, payload json.RawMessage) error {
	if len(required) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); err != nil || fields == nil {
		return errors.New("its payload is missing, or no object")
	}
	for _, name := range required {
		if value := fields[name]; len(value) == 0 || string(value) == "null" {
			return fmt.Errorf("its payload lacks %s", name)
		}
	}
	return nil
}

// wholeNumber reports whether text is a whole number in JSON's notation.
func wholeNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == "" && (digits == "0" || digits[0] != '0')
}
