package faults

// streamDefects are mistakes with brokers of other kinds, and with their consumers.
var streamDefects = []defect{
	{name: "unknown_stream_is_done", row: "F27_nats", want: Lost},
	{name: "unknown_topic_is_done", row: "F27_kafka", want: Lost},
	{name: "acknowledged_before_the_effect", row: "F30_nats", want: Effect, consumes: true, drain: patience},
	{name: "committed_before_the_effect", row: "F30_kafka", want: Effect, consumes: true, drain: patience},
	{name: "no_room_uses_an_attempt", row: "F31_nats", want: Parked},
	{name: "no_room_is_done", row: "F31_kafka", want: Lost},
}
