package api_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/exampletest"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func TestExamples(t *testing.T) { exampletest.Check(t) }

// Call the API without package sandbox: no sandbox is closed or kept alive by itself.
func ExampleClient() {
	ctx := context.Background()
	cloud, err := local.Start(ctx) // or api.FromEnv and a service
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	client, err := api.NewClient(api.WithAPIKey(cloud.APIKey()), api.WithBaseURL(cloud.URL()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	created, err := client.Sandboxes.Create(ctx, &api.CreateParams{
		Lifetime: time.Minute, Metadata: map[string]string{"job": "nightly"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for info, err := range client.Sandboxes.List(ctx, &api.ListParams{Metadata: map[string]string{"job": "nightly"}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(info.ID == created.ID, info.State)
	}
	if err := client.Sandboxes.Kill(ctx, created.ID); err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Sandboxes.Get(ctx, created.ID)
	fmt.Println(errors.Is(err, api.ErrNotFound))
	// Output:
	// true running
	// true
}

// A program can have a key of its own, which can be taken from it alone.
func ExampleKeyService() {
	ctx := context.Background()
	cloud, err := local.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	client, err := api.NewClient(api.WithAPIKey(cloud.APIKey()), api.WithBaseURL(cloud.URL()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	key, err := client.Keys.Create(ctx, "nightly job")
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := api.NewClient(api.WithAPIKey(key.Key), api.WithBaseURL(cloud.URL()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer job.Close()
	_, err = job.Sandboxes.ListPage(ctx, nil)
	fmt.Println(err)

	if err := client.Keys.Delete(ctx, key.ID); err != nil {
		fmt.Println(err)
		return
	}
	_, err = job.Sandboxes.ListPage(ctx, nil)
	fmt.Println(errors.Is(err, api.ErrUnauthorized))
	// Output:
	// <nil>
	// true
}
