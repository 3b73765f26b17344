// Package halfmsg says what a half message is: its states, the moves between them that are legal, and what a store, a
// publisher and the producers' callbacks promise to the rest of the house.
//
// It knows neither Redis nor RabbitMQ nor gRPC, and imports the standard library only. Everything that can be said once
// about a message is said here: the table in state.go is the only place where a move is allowed, and every store, loop
// and diagram derives from it.
package halfmsg
