//! What every engine does on every kind of file.

use super::*;

/// Runs `body` for each pair of engine and file.
fn on_all(contents: &[u8], body: impl Fn(&Engine, &Arc<IoFile>)) {
    let folders = folders();
    for (name, engine) in engines() {
        for file in files(&folders, contents) {
            println!("{name} on {} (direct: {})", file.path().display(), file.is_direct());
            body(&engine, &file);
        }
    }
}

#[test]
fn what_is_written_is_read_in_any_order() {
    on_all(&[], |engine, file| {
        let queue = engine.queue(6).unwrap();
        for block in 0..20u64 {
            if queue.held() == 6 {
                let completion = queue.next().unwrap().unwrap();
                assert_eq!(completion.result.unwrap(), 3 * BLOCK);
            }
            let data = filled(3 * BLOCK, usize::try_from(block).unwrap());
            queue.submit(Request::write(file, block * 3 * BLOCK as u64, data).tag(block)).unwrap();
        }
        assert!(queue.wait_all().unwrap().iter().all(|c| c.result.is_ok() && c.op == Op::Write));
        let order = [19u64, 0, 7, 3, 12, 5];
        let submit = |&block: &u64| {
            let read = Request::read(file, block * 3 * BLOCK as u64, buffer(3 * BLOCK)).tag(block);
            queue.submit(read).unwrap()
        };
        let tickets: Vec<Ticket> = order.iter().map(submit).collect();
        for (ticket, block) in tickets.iter().zip(order).rev() {
            let completion = queue.wait(*ticket).unwrap();
            assert_eq!((completion.ticket, completion.tag), (*ticket, block));
            assert_eq!(completion.result.unwrap(), 3 * BLOCK);
            assert!(*completion.buffer == *pattern(3 * BLOCK, usize::try_from(block).unwrap()));
        }
        assert!(queue.next().unwrap().is_none());
    });
}

#[test]
fn the_blocking_calls_move_everything() {
    on_all(&[], |engine, file| {
        let before = engine.counts();
        let (_, bytes) = engine.write_all_at(file, 4096, filled(5 * BLOCK, 3)).unwrap().into_result().unwrap();
        assert_eq!(bytes, 5 * BLOCK);
        let (read, _) = engine.read_exact_at(file, 4096, buffer(5 * BLOCK)).unwrap().into_result().unwrap();
        assert!(*read == *pattern(5 * BLOCK, 3));
        file.sync_data().unwrap();
        let after = engine.counts();
        assert_eq!(after.bytes_read - before.bytes_read, 5 * BLOCK as u64);
        assert_eq!(after.bytes_written - before.bytes_written, 5 * BLOCK as u64);
        assert_eq!((after.requests - before.requests, after.in_flight), (2, 0));
    });
}

#[test]
fn the_end_of_a_file_fails_or_stops_as_asked() {
    // The tail is no multiple of any block size.
    let contents = pattern(2 * BLOCK + 1000, 1);
    on_all(&contents, |engine, file| {
        let read = Request::read(file, BLOCK as u64, buffer(2 * BLOCK)).at_end(AtEnd::Stop);
        let completion = engine.run(read).unwrap();
        assert_eq!(completion.result.unwrap(), BLOCK + 1000);
        assert!(completion.buffer[..BLOCK + 1000] == contents[BLOCK..]);

        let completion = engine.read_exact_at(file, BLOCK as u64, buffer(2 * BLOCK)).unwrap();
        let error = completion.result.unwrap_err();
        let Error::EndOfFile { at } = &error else { panic!("{error}") };
        assert_eq!((at.offset, at.asked_bytes, at.done_bytes), (BLOCK as u64, 2 * BLOCK, BLOCK + 1000));
        assert!(error.to_string().contains(&file.path().display().to_string()));

        let beyond = Request::read(file, 100 * BLOCK as u64, buffer(BLOCK)).at_end(AtEnd::Stop);
        assert_eq!(engine.run(beyond).unwrap().result.unwrap(), 0);
    });
}

#[test]
fn spans_touch_only_their_bytes() {
    on_all(&pattern(4 * BLOCK, 2), |engine, file| {
        let read = Request::read(file, BLOCK as u64, buffer(3 * BLOCK)).span(BLOCK..2 * BLOCK);
        let (bytes, moved) = engine.run(read).unwrap().into_result().unwrap();
        assert_eq!(moved, BLOCK);
        assert!(bytes[..BLOCK].iter().all(|&b| b == 0) && bytes[2 * BLOCK..].iter().all(|&b| b == 0));
        assert!(bytes[BLOCK..2 * BLOCK] == pattern(4 * BLOCK, 2)[BLOCK..2 * BLOCK]);
    });
}

#[test]
fn requests_without_bytes_complete() {
    on_all(&pattern(BLOCK, 0), |engine, file| {
        for request in [Request::read(file, 3, buffer(0)), Request::write(file, 3, buffer(0))] {
            assert_eq!(engine.run(request).unwrap().result.unwrap(), 0);
        }
        let empty_span = Request::read(file, 1, buffer(BLOCK)).span(5..5);
        assert_eq!(engine.run(empty_span).unwrap().result.unwrap(), 0);
    });
}

#[test]
fn bad_requests_come_back_with_their_buffer() {
    on_all(&pattern(4 * BLOCK, 0), |engine, file| {
        let queue = engine.queue(2).unwrap();
        let outside = Request::read(file, 0, buffer(BLOCK)).span(0..BLOCK + 1);
        let rejected = queue.submit(outside).unwrap_err();
        assert!(matches!(rejected.error, Error::OutsideBuffer { end, .. } if end == BLOCK + 1));
        assert_eq!(rejected.request.buffer.len(), BLOCK);

        let far = Request::read(file, u64::MAX - 10, buffer(BLOCK));
        assert!(matches!(queue.submit(far).unwrap_err().error, Error::OutOfRange { .. }));

        let need = file.alignment();
        if need.offset_bytes == 1 {
            return;
        }
        let half = need.offset_bytes / 2;
        for (offset, span) in [(half, 0..BLOCK), (0, 0..half), (0, 1..1 + need.offset_bytes)] {
            let request = Request::read(file, offset as u64, buffer(BLOCK)).span(span.clone());
            let rejected = queue.submit(request).unwrap_err();
            let Error::Misaligned { at, offset_bytes, .. } = rejected.error else { panic!("{}", rejected.error) };
            assert_eq!((at.offset, at.asked_bytes), (offset as u64, span.len()));
            assert_eq!(offset_bytes, need.offset_bytes);
        }
        assert_eq!(queue.held(), 0);
    });
}

#[test]
fn many_threads_share_an_engine_and_a_queue() {
    on_all(&pattern(64 * BLOCK, 4), |engine, file| {
        let shared = engine.queue(3).unwrap();
        let contents = pattern(64 * BLOCK, 4);
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (shared, contents) = (&shared, &contents);
                scope.spawn(move || {
                    let own = engine.queue(2).unwrap();
                    for round in 0..8 {
                        let block = (thread * 13 + round * 7) % 64;
                        let read = || Request::read(file, (block * BLOCK) as u64, buffer(BLOCK));
                        let tickets = (shared.submit(read()).unwrap(), own.submit(read()).unwrap());
                        for completion in [shared.wait(tickets.0).unwrap(), own.wait(tickets.1).unwrap()] {
                            assert!(*completion.buffer == contents[block * BLOCK..(block + 1) * BLOCK]);
                        }
                    }
                });
            }
        });
        assert_eq!(engine.counts().in_flight, 0);
        assert!(engine.counts().max_in_flight <= 3 + 4 * 2);
    });
}

#[test]
fn buffers_of_several_types_share_an_engine() {
    for (_, engine) in engines() {
        let file = ram_file(RamOptions { contents: pattern(BLOCK, 0), ..RamOptions::default() });
        let boxed: Box<dyn IoBuffer> = Box::new(buffer(BLOCK));
        assert_eq!(engine.run(Request::read(&file, 0, boxed)).unwrap().result.unwrap(), BLOCK);
        let alive = Arc::new(AtomicUsize::new(0));
        let counted = engine.read_exact_at(&file, 0, Counted::new(BLOCK, &alive)).unwrap();
        assert!(*counted.buffer.0 == *pattern(BLOCK, 0));
    }
}

#[test]
fn more_in_memory_files_than_slots_do_not_stall() {
    for (_, engine) in engines() {
        let file = ram_file(RamOptions::default());
        let queue = engine.queue(64).unwrap();
        for round in 0..20 {
            for block in 0..64u64 {
                queue.submit(Request::write(&file, block * 64, filled(64, round))).unwrap();
            }
            assert_eq!(queue.wait_all().unwrap().len(), 64);
        }
    }
}

/// Longer than one call of the kernel can move. Takes 2 GiB of memory.
#[test]
#[ignore = "needs 2 GiB of memory"]
fn requests_beyond_the_kernels_limit_are_continued() {
    let len = (2usize << 30) + 2 * BLOCK;
    for (name, engine) in engines().into_iter().filter(|(name, _)| !name.contains(',')) {
        let folder = tempfile::tempdir().unwrap();
        let path = fresh_path(folder.path());
        let options = FileOptions { access: Access::CreateNew, ..FileOptions::default() };
        let file = Arc::new(IoFile::open(path, &options).unwrap());
        file.set_len(len as u64).unwrap();
        let tail = (len - BLOCK) as u64;
        engine.write_all_at(&file, tail, filled(BLOCK, 1)).unwrap().into_result().unwrap();
        let (bytes, moved) = engine.read_exact_at(&file, 0, buffer(len)).unwrap().into_result().unwrap();
        assert_eq!(moved, len, "{name}");
        assert!(bytes[len - BLOCK..] == pattern(BLOCK, 1));
    }
}
