// Runs the unmodified go-beanstalk against a running dwell: go run . 127.0.0.1:11300
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func assert(holds bool, what string) {
	if !holds {
		panic(what)
	}
}

func main() {
	conn := must(beanstalk.Dial("tcp", os.Args[1]))
	tube := beanstalk.NewTube(conn, "gobeanstalk")
	tubes := beanstalk.NewTubeSet(conn, "gobeanstalk")

	// put, reserve, touch, delete
	id := must(tube.Put([]byte("hello"), 7, 0, 30*time.Second))
	got, body, err := tubes.Reserve(0)
	check(err)
	assert(got == id && string(body) == "hello", "the job comes back as it was put")
	check(conn.Touch(id))
	check(conn.Delete(id))
	var refused beanstalk.ConnError
	assert(errors.As(conn.Delete(id), &refused) && refused.Err == beanstalk.ErrNotFound, "a deleted job is gone")

	// a delay, kick, release
	id = must(tube.Put([]byte("later"), 1, 100*time.Second, 30*time.Second))
	assert(must(conn.StatsJob(id))["state"] == "delayed", "it is delayed")
	peeked, _, err := tube.PeekDelayed()
	check(err)
	assert(peeked == id, "peek-delayed shows it")
	assert(must(tube.Kick(10)) == 1, "it is kicked")
	got, _, err = tubes.Reserve(0)
	check(err)
	check(conn.Release(got, 3, 0))
	got, _, err = tubes.Reserve(0)
	check(err)

	// bury, kick-job
	check(conn.Bury(got, 9))
	peeked, _, err = tube.PeekBuried()
	check(err)
	assert(peeked == id, "peek-buried shows it")
	check(conn.KickJob(got))

	// pause, stats
	check(tube.Pause(60 * time.Second))
	_, _, err = tubes.Reserve(0)
	assert(errors.As(err, &refused) && refused.Err == beanstalk.ErrTimeout, "a paused tube hands nothing out")
	check(tube.Pause(0))
	got, _, err = tubes.Reserve(10 * time.Second)
	check(err)
	check(conn.Delete(got))
	assert(must(tube.Stats())["current-jobs-ready"] == "0", "the tube is empty")
	assert(must(conn.Stats())["version"] != "", "the server says what it is")
	check(conn.Close())
	fmt.Println("go-beanstalk: ok")
}
