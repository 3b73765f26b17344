module github.com/msghandler/msghandler/envelope

go 1.26.0
