import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * Commits and aborts, is fenced, and carries every record of one topic to another exactly once,
 * while every other attempt is aborted. Prints "fenced by" and the exception's name for the
 * zombie, and "attempts" and how many the chain took.
 *
 * <p>Arguments: bootstrap servers, topic that is read, topic that is written, how many records
 * there are to read; or "endless": it only carries, until its input is closed, and begins anew
 * with whatever it meets.
 */
public final class TransactionalChain {
    private static final String CODEC = "org.apache.kafka.common.serialization.String";
    private static final long DEADLINE_MS = 120_000;

    private final String bootstrap;
    private final String source;
    private final String target;

    private TransactionalChain(String[] arguments) {
        bootstrap = arguments[0];
        source = arguments[1];
        target = arguments[2];
    }

    public static void main(String[] arguments) {
        TransactionalChain chain = new TransactionalChain(arguments);
        if (arguments[3].equals("endless")) {
            chain.carryUntilClosed();
            return;
        }
        KafkaProducer<String, String> producer = chain.producer();
        chain.commitAndAbort(producer);
        producer = chain.fence(producer);
        chain.carry(producer, Integer.parseInt(arguments[3]));
        producer.close();
    }

    private KafkaProducer<String, String> producer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", target);
        settings.put("key.serializer", CODEC + "Serializer");
        settings.put("value.serializer", CODEC + "Serializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }

    private void commitAndAbort(KafkaProducer<String, String> producer) {
        for (int round = 0; round < 6; round++) {
            producer.beginTransaction();
            for (int partition = 0; partition < 2; partition++) {
                String value = (round % 2 == 0 ? "kept-" : "dropped-") + round + "-" + partition;
                producer.send(new ProducerRecord<>(target, partition, null, value));
            }
            if (round % 2 == 0) {
                producer.commitTransaction();
            } else {
                producer.flush();
                producer.abortTransaction();
            }
        }
    }

    private KafkaProducer<String, String> fence(KafkaProducer<String, String> zombie) {
        zombie.beginTransaction();
        zombie.send(new ProducerRecord<>(target, 0, null, "zombie"));
        zombie.flush();
        KafkaProducer<String, String> successor = producer();
        try {
            zombie.commitTransaction();
            System.out.println("fenced by nobody");
        } catch (KafkaException error) {
            System.out.println("fenced by " + error.getClass().getSimpleName());
        }
        zombie.close(Duration.ZERO);
        return successor;
    }

    private void carryUntilClosed() {
        Thread life = new Thread(() -> {
            while (true) {
                try (KafkaProducer<String, String> producer = producer()) {
                    carry(producer, Integer.MAX_VALUE);
                } catch (KafkaException error) {
                    System.out.println("met " + error + ", of " + error.getCause());
                }
            }
        });
        life.setDaemon(true);
        life.start();
        try {
            System.in.transferTo(OutputStream.nullOutputStream());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        System.exit(0);
    }

    private void carry(KafkaProducer<String, String> producer, int wanted) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", target);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "5");
        settings.put("key.deserializer", CODEC + "Deserializer");
        settings.put("value.deserializer", CODEC + "Deserializer");
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        int attempts = 0;
        int done = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(source));
            while (done < wanted && System.currentTimeMillis() < deadline) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(
                            new ProducerRecord<>(target, record.partition(), null, record.value()));
                    offsets.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (attempts++ % 2 == 0) {
                    producer.abortTransaction();
                    rewind(consumer);
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
        }
        System.out.println("attempts " + attempts);
    }

    /** Back to what the group has committed, as after a rebalance. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        Set<TopicPartition> assigned = new HashSet<>(consumer.assignment());
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(assigned);
        for (TopicPartition each : assigned) {
            OffsetAndMetadata place = committed.get(each);
            if (place == null) {
                consumer.seekToBeginning(List.of(each));
            } else {
                consumer.seek(each, place.offset());
            }
        }
    }
}
