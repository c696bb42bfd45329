//! Bounds, timeouts, and what happens to requests when an engine, a queue or a thread goes away.

use super::dispatch::{Dispatch, Running};
use super::*;

fn small_file() -> Arc<IoFile> {
    ram_file(RamOptions { contents: pattern(64 * BLOCK, 0), ..RamOptions::default() })
}

/// Real files too: only there does the kernel hold buffers.
fn disk_file(folder: &TempDir) -> Arc<IoFile> {
    let path = fresh_path(folder.path());
    fs::write(&path, pattern(64 * BLOCK, 0)).unwrap();
    Arc::new(IoFile::open(path, &FileOptions::default()).unwrap())
}

#[test]
fn a_full_queue_refuses_or_times_out_and_takes_more_after_collecting() {
    for (name, engine) in engines() {
        let queue = engine.queue(2).unwrap().with_timeout(Duration::from_millis(10));
        let read = || Request::read(&small_file(), 0, buffer(BLOCK));
        queue.submit(read()).unwrap();
        queue.submit(read()).unwrap();
        let refused = queue.try_submit(read()).unwrap_err();
        assert!(matches!(refused.error, Error::TooManyInFlight { capacity: 2 }), "{name}");
        assert_eq!(refused.request.buffer.len(), BLOCK);
        assert!(matches!(queue.submit(read()).unwrap_err().error, Error::TimedOut { .. }), "{name}");
        let queue = queue.with_timeout(Duration::from_secs(20));
        assert!(queue.next().unwrap().is_some());
        queue.try_submit(read()).unwrap();
    }
}

#[test]
fn a_submitter_waits_for_another_thread_to_collect() {
    let engine = engine(Choice::Auto);
    let queue = engine.queue(1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..50 {
                queue.submit(Request::read(&small_file(), 0, buffer(64)).tag(tag)).unwrap();
            }
        });
        let mut next = 0;
        while next < 50 {
            if let Some(completion) = queue.next().unwrap() {
                assert_eq!(completion.tag, next);
                next += 1;
            }
        }
    });
}

#[test]
fn waiting_times_out_and_the_request_survives_it() {
    // An engine whose only thread is this one, so that nothing happens until it is told to.
    let dispatch = Arc::new(Dispatch::new(EngineKind::Threads, Duration::from_millis(1), 4096, None));
    let _running = Running::new(&dispatch);
    let queue = Queue::new(&dispatch, 1).unwrap();
    let ticket = queue.submit(Request::read(&small_file(), 0, buffer(64))).unwrap();
    assert!(matches!(queue.wait(ticket), Err(Error::TimedOut { .. })));
    assert!(matches!(queue.next(), Err(Error::TimedOut { .. })));
    assert!(matches!(queue.wait_all(), Err(Error::TimedOut { .. })));
    assert!(queue.poll().is_none());
    threads::finish(dispatch.next().unwrap(), &dispatch);
    assert!(queue.wait(ticket).unwrap().result.is_ok());
    assert!(matches!(queue.wait(ticket), Err(Error::UnknownTicket { .. })));
    assert!(dispatch.counters.snapshot().waiting > Duration::ZERO);
}

#[test]
fn waiting_on_threads_that_are_gone_ends_at_once() {
    let dispatch = Arc::new(Dispatch::new(EngineKind::Threads, Duration::from_secs(600), 4096, None));
    let queue = Queue::new(&dispatch, 1).unwrap();
    let ticket = queue.submit(Request::read(&small_file(), 0, buffer(64))).unwrap();
    assert!(matches!(queue.wait(ticket), Err(Error::Closed { .. })));
    dispatch.close("over");
    assert!(matches!(queue.wait(ticket).unwrap().result, Err(Error::Closed { .. })));
}

#[test]
fn dropping_an_engine_answers_everything_and_returns_every_buffer() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = engines();
    all.push(("slow", engine(slow(30))));
    for (name, engine) in all {
        let alive = Arc::new(AtomicUsize::new(0));
        let file = disk_file(&folder);
        let queue = engine.queue(40).unwrap();
        for block in 0..40u64 {
            queue.submit(Request::read(&file, block * BLOCK as u64, Counted::new(BLOCK, &alive))).unwrap();
        }
        drop(engine);
        let all = queue.wait_all().unwrap();
        assert_eq!(all.len(), 40, "{name}");
        assert!(all.iter().all(|c| matches!(c.result, Ok(BLOCK) | Err(Error::Closed { .. }))), "{name}");
        assert_eq!(alive.load(Ordering::SeqCst), 40);
        drop(all);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
        let rejected = queue.submit(Request::read(&file, 0, Counted::new(BLOCK, &alive))).err().unwrap();
        assert!(matches!(rejected.error, Error::Closed { .. }), "{name}");
    }
}

#[test]
fn dropping_a_queue_frees_its_buffers_once_they_are_done() {
    let folder = tempfile::tempdir().unwrap();
    for (name, engine) in engines() {
        let alive = Arc::new(AtomicUsize::new(0));
        let file = disk_file(&folder);
        let queue = engine.queue(40).unwrap();
        for block in 0..40u64 {
            queue.submit(Request::read(&file, block * BLOCK as u64, Counted::new(BLOCK, &alive))).unwrap();
        }
        drop(queue);
        drop(engine);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "{name}");
        assert_eq!(Arc::strong_count(&file), 1, "{name}");
    }
}

#[test]
fn an_engine_that_does_not_stop_is_left_behind_with_its_buffers() {
    let plan = FaultPlan { latency: Duration::from_millis(300), ..FaultPlan::default() };
    let config = EngineConfig { timeout: Duration::from_millis(1), ..config(Choice::Ram(plan)) };
    let engine = Engine::new(config).unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    let queue = engine.queue(1).unwrap().with_timeout(Duration::from_secs(20));
    let ticket = queue.submit(Request::read(&small_file(), 0, Counted::new(BLOCK, &alive))).unwrap();
    drop(engine);
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    // Whether the thread had taken the request before the drop decides the result; the buffer comes back either way.
    drop(queue.wait(ticket).unwrap());
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn an_engine_that_dies_wakes_its_waiters_with_the_reason() {
    let plan = FaultPlan { dies_at_step: Some(3), ..FaultPlan::default() };
    let engine = engine(Choice::Ram(plan));
    let queue = engine.queue(8).unwrap();
    let mut refused = 0;
    for tag in 0..8 {
        let sent = queue.submit(Request::read(&small_file(), 0, buffer(64)).tag(tag));
        refused += usize::from(sent.is_err());
    }
    let all = queue.wait_all().unwrap();
    assert_eq!(all.len() + refused, 8);
    assert_eq!(all.iter().filter(|c| c.result.is_ok()).count(), 3);
    let error = queue.submit(Request::read(&small_file(), 0, buffer(64))).unwrap_err().error;
    assert!(error.to_string().contains("died"), "{error}");
}

#[test]
fn a_panicking_thread_answers_what_it_held() {
    let dispatch = Arc::new(Dispatch::new(EngineKind::Ram, Duration::from_secs(20), 4096, None));
    let queue = Queue::new(&dispatch, 4).unwrap();
    let running = Running::new(&dispatch);
    let tickets: Vec<Ticket> =
        (0..2).map(|_| queue.submit(Request::read(&small_file(), 0, buffer(64))).unwrap()).collect();
    let shared = Arc::clone(&dispatch);
    let thread = std::thread::spawn(move || {
        let _running = running;
        let _job = shared.next();
        panic!("on purpose");
    });
    for ticket in tickets {
        assert!(matches!(queue.wait(ticket).unwrap().result, Err(Error::Closed { .. })));
    }
    assert!(thread.join().is_err());
}

#[test]
fn a_buffer_the_kernel_may_hold_is_leaked_and_its_waiter_told() {
    let dispatch = Arc::new(Dispatch::new(EngineKind::Uring, Duration::from_secs(20), 4096, None));
    let alive = Arc::new(AtomicUsize::new(0));
    let queue = Queue::new(&dispatch, 4).unwrap();
    let running = Running::new(&dispatch);
    let request = || Request::read(&small_file(), 0, Counted::new(64, &alive));
    let ticket = queue.submit(request()).unwrap();
    dispatch.take(1).jobs.pop().unwrap().lose();
    assert!(matches!(queue.wait(ticket), Err(Error::Closed { .. })));
    queue.submit(request()).unwrap();
    dispatch.take(1).jobs.pop().unwrap().lose();
    assert!(matches!(queue.next(), Err(Error::Closed { .. })));
    assert_eq!((alive.load(Ordering::SeqCst), queue.held()), (2, 0));
    drop(running);
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    for depth in [0, 5000] {
        let error = Engine::new(EngineConfig { depth, ..EngineConfig::default() }).err().unwrap();
        assert!(matches!(error, Error::Config { field: "depth", .. }), "{error}");
    }
    let error = engine(Choice::Auto).queue::<AlignedBuffer>(0).err().unwrap();
    assert!(matches!(error, Error::Config { field: "capacity", .. }), "{error}");
    assert!(matches!(AlignedBuffer::new(usize::MAX), Err(Error::Allocate { .. })));
}

#[test]
fn the_automatic_choice_says_why_it_fell_back() {
    let engine = engine(Choice::Auto);
    let reason = uring::open(1 << 20).err().unwrap();
    assert!(reason.contains("io_uring_setup"), "{reason}");
    match engine.kind() {
        EngineKind::Uring => assert_eq!(engine.fallback_reason(), None),
        kind => {
            assert_eq!(kind, EngineKind::Threads);
            println!("fell back: {}", engine.fallback_reason().unwrap());
        }
    }
}
